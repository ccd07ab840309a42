"""Which runs have which GPUs of this machine: a file a run and GPU, locked as long as the run lives.

The driver shows a run only once its processes use the GPU, seconds after it was launched. Until then, and for the
queues and launches of all users of a machine, these files show it. They lie in one directory for all users; a lock
belongs to an open file, which the run's supervisor inherits: the kernel releases it when the last process ends that
has it. So nobody cleans up after a crash; whoever takes a lease removes what is left of their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import open_regular, opened
from tuiapp.trainers.config.machine import Gpu, Lease
from tuiapp.trainers.contract.lock import FLOCK

DIRECTORY_VARIABLE = "TUIAPP_GPU_LEASES"
DIRECTORY = "/tmp/tuiapp-gpus"
CHOOSING = "choosing"
"""Locked by who chooses GPUs and takes them."""
CHOOSING_S = 10.0
"""After which somebody's lock is ignored: choosing takes a moment."""
MAX_BYTES = 4096


def directory() -> Path:
    """Returns where the files are: the same for all who share the machine's GPUs."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or DIRECTORY)


@contextlib.contextmanager
def choosing() -> Iterator[None]:
    """Keeps others from choosing GPUs at the same time; does without where the directory cannot be used."""
    fd = None
    with contextlib.suppress(OSError):
        fd = _open_shared(directory() / CHOOSING)
    try:
        deadline = time.monotonic() + CHOOSING_S
        while fd is not None and time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def take(uuids: Sequence[str], run_id: str) -> list[int]:
    """Notes that a run has these GPUs; returns the descriptors that say so while a process has them open.

    To be called while `choosing`. Those of which no note can be written have none.
    """
    _sweep()
    descriptors = []
    for uuid in uuids:
        lease = Lease(gpu=uuid, run=run_id, user=_user(), since=time.time())
        with contextlib.suppress(OSError):
            fd = open_regular(directory() / lease.file, os.O_RDWR | os.O_CREAT)
            descriptors.append(fd)
            os.fchmod(fd, 0o644)
            os.ftruncate(fd, 0)
            os.pwrite(fd, msgspec.json.encode(lease), 0)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK))
    return descriptors


def leases() -> list[Lease]:
    """Returns what live runs have, the oldest first."""
    held = []
    for path in _files():
        with contextlib.suppress(OSError, ValueError, RecursionError), opened(path) as fd:
            if _is_held(fd):
                held.append(_read(fd))
    return sorted(held, key=lambda lease: lease.since)


def let_go(descriptors: Sequence[int]) -> None:
    """Closes what `take` has returned, once the run's supervisor has it."""
    for fd in descriptors:
        os.close(fd)


def with_leases(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Returns the GPUs, with the runs that have them now."""
    held = leases() if gpus else []
    return tuple(
        msgspec.structs.replace(gpu, leases=tuple(lease for lease in held if lease.gpu == gpu.uuid)) for gpu in gpus
    )


def _files() -> list[Path]:
    try:
        return [path for path in directory().iterdir() if path.name != CHOOSING]
    except OSError:
        return []


def _sweep() -> None:
    """Removes this user's leases of runs that have ended, and nothing else: the directory may be a wrong one."""
    for path in _files():
        with contextlib.suppress(OSError, ValueError, RecursionError), opened(path) as fd:
            owned = os.fstat(fd).st_uid == os.getuid()
            if owned and not _is_held(fd) and _read(fd).file == path.name:
                path.unlink()


def _read(fd: int) -> Lease:
    return msgspec.json.decode(os.pread(fd, MAX_BYTES, 0), type=Lease)


def _is_held(fd: int) -> bool:
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK))
    return bool(struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK)


def _lock(kind: int) -> bytes:
    return struct.pack(FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _open_shared(path: Path) -> int:
    """Opens a file that belongs to the first user who needed it, and makes it, and the directory, if there is none."""
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir()
        path.parent.chmod(0o1777)
    # Of a file of somebody else's in such a directory, opening may not ask to make it.
    with contextlib.suppress(FileNotFoundError):
        return open_regular(path)
    fd = open_regular(path, os.O_RDWR | os.O_CREAT)
    os.fchmod(fd, 0o644)
    return fd


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
