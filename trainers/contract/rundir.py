"""A run is a directory: its files, and what they reveal about the run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

from trainers.config.files import open_regular, read_limited, user_data
from trainers.config.user_code import slug
from trainers.contract.process_identity import machine

NOTED_MACHINE = re.compile(rb'"machine":"([^"]+)"')
RUN_ID = re.compile(r"\d{8}T\d{6}-[a-z0-9-]+-[0-9a-f]{4}")


LOCK_S = 2.0
"""How long a lock is tried: a view that looks at it holds it for an instant."""
SECRET_VARIABLE = "TUIAPP_SECRET_FILE"
"""Environment variable: the file from which a node's agent reads the run's secret."""
BEAT_S = 5.0
"""A supervisor sets its lock file's time this often."""
BEATS_S = 30.0
"""How old that may be on another machine, where the lock need not be seen: over sshfs, NFS with local locks, Lustre."""
NOTE_BYTES = 2048
"""Of the lock file: see `trainers.contract.lock_note`."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one run. Creating the object touches nothing."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "run.toml"

    @property
    def about(self) -> Path:
        """Name, tags and note, which the user may change at any time: see `trainers.contract.about`."""
        return self.path / "about.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def environment(self) -> Path:
        """Versions, devices, git commit, host, command line."""
        return self.path / "environment.json"

    @property
    def journal(self) -> Path:
        """All events, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def digest(self) -> Path:
        """A summary of the journal: see `trainers.state.digest`. May be deleted."""
        return self.path / "digest"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def code(self) -> Path:
        """Copies of the user's own files, as they were at the launch."""
        return self.path / "code"

    @property
    def commands(self) -> Path:
        return self.path / "commands"

    @property
    def address(self) -> Path:
        """Name of the socket to which ranks that report by `tuiapp.log` connect: see `trainers.run.listener`."""
        return self.path / "address"

    @property
    def secret(self) -> Path:
        """What the agents of other nodes prove to know: see `trainers.run.nodes`."""
        return self.path / "secret"

    @property
    def port(self) -> Path:
        """Where they connect, as ADDRESS:PORT."""
        return self.path / "port"

    @property
    def handover(self) -> Path:
        """There while the run's Slurm job, which has begun, asks the process that waited for it for the lock."""
        return self.path / "handover"

    @property
    def job(self) -> Path:
        """Locked as long as the run's Slurm job exists, by the process that watches it."""
        return self.path / "job"

    @property
    def queued(self) -> Path:
        """The id of the run's Slurm job; there while that waits in the queue, whether or not a process watches it."""
        return self.path / "queued"

    @property
    def mirror(self) -> Path:
        """How far the run is mirrored: see `trainers.run.mirror`."""
        return self.path / "mirror"

    @property
    def notice(self) -> Path:
        """What to do at the end; removed by whoever does it: see `trainers.contract.notices`."""
        return self.path / "notice.json"

    @property
    def checkpoints(self) -> Path:
        """What the run can resume from: see `trainers.contract.manifest`."""
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        return self.path / "export"

    @property
    def lock(self) -> Path:
        """Locked by the live supervisor; the kernel releases it when the supervisor dies."""
        return self.path / "lock"

    def rank(self, rank: int) -> Path:
        """A rank's directory: stdout.log and stderr.log."""
        return self.path / "ranks" / str(rank)

    def is_gone(self) -> bool:
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def is_live(self) -> bool:
        """Whether a supervisor holds the lock, or the run has a Slurm job; False if that cannot be determined."""
        return self.seen_live() is True

    def seen_live(self) -> bool | None:
        """As `is_live`; None if there is no lock file, or it cannot be reached."""
        seen = _is_locked(self.lock)
        if seen or (seen is False and self.has_job()):
            return True
        return _beats(self.lock) or seen

    def queued_job(self) -> str:
        """The id of the run's Slurm job while that waits in the queue; "" otherwise."""
        try:
            return read_limited(self.queued, NOTE_BYTES).strip()
        except (OSError, ValueError):
            return ""

    def has_job(self) -> bool:
        """Whether the run has a Slurm job, which may start it, or start it again."""
        return os.path.exists(self.queued) or _is_locked(self.job) is True

    def is_watched(self) -> bool:
        """Whether a process, here or on another machine, watches the run's Slurm job, or its supervisor is up."""
        return _is_locked(self.job) is True or _is_locked(self.lock) is True or _beats(self.lock)

    def is_supervised(self) -> bool:
        """Whether somebody holds the run's own lock."""
        return _is_locked(self.lock) is True

    def take_lock(self, timeout_s: float = LOCK_S) -> int:
        """Makes the caller the run's one live supervisor; returns the descriptor that holds the lock while open.

        Raises BlockingIOError if another supervisor has it, OSError if it cannot be written, or is not a regular file.
        """
        return _take(self.lock, timeout_s)

    def take_job(self) -> int:
        """Makes the caller the process that watches the run's Slurm job; as `take_lock`."""
        return _take(self.job)


def _is_locked(path: Path) -> bool | None:
    try:
        fd = open_regular(path)
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


def _take(path: Path, timeout_s: float = LOCK_S) -> int:
    fd = open_regular(path, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A view that asks `is_live` holds it for an instant.
            if time.monotonic() > deadline:
                os.close(fd)
                raise
            time.sleep(0.01)
        else:
            return fd


def beat(fd: int) -> None:
    """Shows other machines that the holder of a lock lives."""
    with contextlib.suppress(OSError):
        os.utime(fd)


def _beats(lock: Path) -> bool:
    """Whether a supervisor on another machine has shown that it lives."""
    try:
        fd = open_regular(lock)
    except OSError:
        return False
    try:
        machines = NOTED_MACHINE.findall(os.pread(fd, NOTE_BYTES, 0))
        beat_at = os.fstat(fd).st_mtime
    except OSError:
        return False
    finally:
        os.close(fd)
    if not machines or machines[0] == machine().encode():
        return False
    now = time.time()
    # This machine's clock may be wrong: asked only then, for it costs a file.
    return abs(now - beat_at) < BEATS_S or abs(now + _ahead_s(lock.parent, int(now / 60)) - beat_at) < BEATS_S


@lru_cache(maxsize=64)
def _ahead_s(directory: Path, _minute: int) -> float:
    """How far the clock that times a directory's files, a file server's, is ahead of this machine's; 0 if unknown."""
    try:
        with TemporaryFile(dir=directory) as file:
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0


def default_runs_dir() -> Path:
    """Returns `TUIAPP_RUNS_DIR`, or `tuiapp/runs` in the user's data directory."""
    if chosen := os.environ.get("TUIAPP_RUNS_DIR"):
        return Path(os.path.expanduser(chosen)).absolute()
    return user_data() / "runs"


def new_run_id(backend: str, subject: str) -> str:
    """`<UTC time>-<backend>-<subject>-<4 hex digits>`; of a file name what may stand in it."""
    # Imports all of hashlib, which those who only look at a run need not wait for.
    import secrets

    now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return f"{now}-{backend}-{slug(subject)}-{secrets.token_hex(2)}"


def make_run_dir(runs_dir: Path, backend: str, subject: str) -> RunDir:
    """Makes an empty directory for a new run, with a unique name. Raises OSError if it cannot be made."""
    while True:
        run = RunDir(runs_dir / new_run_id(backend, subject))
        # Two runs that start within one second may draw the same digits.
        with contextlib.suppress(FileExistsError):
            run.path.mkdir(mode=0o700)
            return run


class HeldDirectory:
    def __init__(self, path: Path) -> None:
        self._fd = _open(path)

    def is_deleted(self) -> bool:
        """Whether it is known to be deleted; False if there was none."""
        if self._fd is None:
            return False
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            # A file server reports it so.
            return True

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
