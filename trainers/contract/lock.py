"""A run's lock: who has the run, and what its holder notes in the lock file.

The run's supervisor, or the process that waits for its Slurm job, holds flock on the file `lock`; the kernel releases
it when the holder dies. Where each machine sees its own locks alone (sshfs, NFS with local locks, Lustre) the file's
time, which the holder renews, shows other machines that the holder lives.

The note in the file always has the same size and is overwritten in place: on most file systems that needs no room on a
full disk, where nothing else could tell a view why the journal does not grow. Btrfs and similar file systems write
nothing in place. There the holder locks one more byte instead, whose place beyond the file's end tells the error: that
needs no disk at all, and ends with the holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from tuiapp.trainers.config.files import open_regular
from tuiapp.trainers.contract.process_identity import identity, machine

LOCK_S = 2.0
"""How long a lock is tried: a view that looks at it holds it for an instant."""
BEAT_S = 5.0
"""A holder sets its lock file's time this often."""
BEATS_S = 30.0
"""How old that may be on another machine for the holder to count as alive."""

NOTE_BYTES = 2048
MAX_TROUBLE_CHARACTERS = 200
MAX_NAME_CHARACTERS = 64

ERRORS = 1 << 12
"""Errors have smaller numbers: errno(3)."""
TRAINING_AT, OVER_AT = 1 << 16, (1 << 16) + ERRORS
"""Where the byte of error 0 would be while training goes on, and once it has ended; that of error 28 is 28 further."""
FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid (fcntl(2))."""


class Liveness(Enum):
    """Who has a run, as far as its files show that on this machine."""

    HELD = "held"
    """A process holds the run's lock: its supervisor, or what waits for its Slurm job."""
    ELSEWHERE = "elsewhere"
    """The lock seems free, but a holder on another machine has shown lately that it lives."""
    JOB = "job"
    """Nobody has the lock, and a process watches the run's Slurm job, which may start it."""
    UNWATCHED_JOB = "unwatched job"
    """Nobody has the lock, and the run's Slurm job waits in the queue without a process that watches it."""
    WAITING = "waiting"
    """Nobody has the lock, and the run waits in the queue of its directory of runs."""
    NOBODY = "nobody"
    UNKNOWN = "unknown"
    """There is no lock file, or it cannot be reached."""

    @property
    def is_live(self) -> bool:
        return self not in (Liveness.NOBODY, Liveness.UNKNOWN)


class LockNote(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int = 0
    """How often the run was started or resumed; 0 if unknown."""
    supervisor: str = ""
    """The supervisor's `process_identity.identity`."""
    machine: str = ""
    """Where that is valid: `process_identity.machine`; "" once the supervisor has let go."""
    host: str = ""
    over: bool = False
    """Training has ended, and its end cannot be written yet."""
    trouble: str = ""
    """Why the journal does not grow, in words; "" if all is well."""

    @classmethod
    def of_this_process(cls, attempt: int = 0) -> LockNote:
        """Returns what this process notes in a lock that it holds."""
        return cls(attempt=attempt, supervisor=identity(os.getpid()), machine=machine(), host=socket.gethostname())


def take(lock: Path, timeout_s: float = LOCK_S) -> int:
    """Takes a lock; returns the descriptor that holds it while open.

    Raises BlockingIOError if another process has it, OSError if it cannot be written, or is not a regular file.
    """
    fd = open_regular(lock, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError as error:
            # A view that looks at it holds it for an instant.
            if not isinstance(error, BlockingIOError) or time.monotonic() > deadline:
                os.close(fd)
                raise
        time.sleep(0.01)


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Lets one process at a time read and then change what is in a directory. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some file servers lock no directories: there the last of two changes made at once is kept.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_held(lock: Path | str) -> bool | None:
    """Returns whether a process holds a lock; None if there is no such file, or it cannot be reached."""
    try:
        fd = open_regular(lock)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def beat(fd: int) -> None:
    """Shows other machines that the holder of a lock lives."""
    with contextlib.suppress(OSError):
        os.utime(fd)


def is_beating(lock: Path | str) -> bool:
    """Returns whether a lock's holder on another machine has shown lately that it lives."""
    noted = read_note(lock).machine
    if not noted or noted == machine():
        return False
    try:
        beat_at = os.lstat(lock).st_mtime
    except OSError:
        return False
    now = time.time()
    # This machine's clock may be wrong: asked only then, for it costs a file.
    return abs(now - beat_at) < BEATS_S or abs(now + _ahead_s(os.path.dirname(lock), int(now / 60)) - beat_at) < BEATS_S


@lru_cache(maxsize=64)
def _ahead_s(directory: str, _minute: int) -> float:
    """Returns how far a file server's clock, which times a directory's files, is ahead of this one; 0 if unknown."""
    try:
        with TemporaryFile(dir=directory) as file:
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0


def write_note(fd: int, note: LockNote) -> bool:
    """Writes the note into the lock file that a supervisor holds; returns whether that succeeded."""
    # Cut by characters, none of which takes more than six bytes of JSON.
    host, trouble = note.host[:MAX_NAME_CHARACTERS], note.trouble[:MAX_TROUBLE_CHARACTERS]
    text = msgspec.json.encode(msgspec.structs.replace(note, host=_ascii(host), trouble=_ascii(trouble)))
    with contextlib.suppress(OSError):
        return os.pwrite(fd, text[:NOTE_BYTES].ljust(NOTE_BYTES), 0) == NOTE_BYTES
    return False


def signal_trouble(fd: int, number: int | None, *, over: bool = False) -> None:
    """Tells an errno, None for all well, where the note cannot be written: by the one byte that it locks for it."""
    with contextlib.suppress(OSError):
        _set_lock(fd, fcntl.F_UNLCK, TRAINING_AT, 2 * ERRORS)
        if number:
            _set_lock(fd, fcntl.F_WRLCK, (OVER_AT if over else TRAINING_AT) + number, 1)


def read_note(lock: Path | str) -> LockNote:
    """Reads the note in a lock file; an empty one if it is missing or damaged."""
    # Without `opened`, which costs 4 µs: a list of runs reads one of each.
    try:
        fd = open_regular(lock)
    except OSError:
        return LockNote()
    try:
        note = msgspec.json.decode(os.pread(fd, NOTE_BYTES, 0), type=LockNote)
        if not note.trouble and (locked := _locked_byte(fd)):
            over = locked > OVER_AT
            then = "The run has ended and waits for disk space" if over else "Training continues"
            why = os.strerror(locked - (OVER_AT if over else TRAINING_AT))
            trouble = f"the journal cannot be written: {why}. {then}"
            note = msgspec.structs.replace(note, trouble=trouble, over=over)
    except (OSError, ValueError, RecursionError):
        return LockNote()
    finally:
        os.close(fd)
    return note


def _set_lock(fd: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))


def _locked_byte(fd: int) -> int:
    """Returns the place of the byte that `signal_trouble` has locked; 0 for none."""
    query = struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, TRAINING_AT, 2 * ERRORS, 0)
    with contextlib.suppress(OSError):
        kind, _, start, length, _ = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query))
        # On NFS, flock shows as a lock on the whole file.
        if kind != fcntl.F_UNLCK and length == 1:
            return int(start)
    return 0


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()
