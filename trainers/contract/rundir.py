"""A run is a directory: its files, and what they reveal about the run."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from tuiapp.trainers.config.files import read_limited, user_data
from tuiapp.trainers.config.user_code import slug
from tuiapp.trainers.contract.lock import LOCK_S, Liveness, LockNote, is_beating, is_held, read_note, take

RUN_ID = re.compile(r"\d{8}T\d{6}-[a-z0-9-]+-[0-9a-f]{4}")

SECRET_VARIABLE = "TUIAPP_SECRET_FILE"
"""Environment variable: the file from which a node's agent reads the run's secret."""
LISTENER_VARIABLE = "TUIAPP_AGENT_LISTENER"
"""Environment variable: the name of the socket to which an agent's ranks report, if somebody else has started them."""
MAX_JOB_BYTES = 64
"""Most bytes of a Slurm job's id."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file or directory of a run, by its name in the run's directory."""

    name: str

    @overload
    def __get__(self, run: None, _: type[RunDir]) -> _File: ...
    @overload
    def __get__(self, run: RunDir, _: type[RunDir]) -> Path: ...
    def __get__(self, run: RunDir | None, _: type[RunDir]) -> _File | Path:
        return self if run is None else run.path / self.name


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one run. Creating the object touches nothing."""

    path: Path

    config = _File("run.toml")
    about = _File("about.json")
    """Name, tags and note, which the user may change at any time: see `tuiapp.trainers.contract.sidecars`."""
    plan = _File("plan.json")
    environment = _File("environment.json")
    """Versions, devices, git commit, host, command line."""
    journal = _File("events.jsonl")
    """All events, one JSON object per line."""
    digest = _File("digest")
    """A summary of the journal: see `tuiapp.trainers.state.snapshot`. May be deleted."""
    status = _File("status.json")
    facts = _File("facts.json")
    """What the run has come to, for lists: see `tuiapp.trainers.contract.status`. May be deleted."""
    supervisor_log = _File("supervisor.log")
    code = _File("code")
    """Copies of the user's own files, as they were at the launch."""
    given_id = _File("id")
    """The id that a script gives its run: see `tuiapp.trainers.script.continuing`."""
    last_step = _File("last-step")
    """The last step that a script had reported when it was started again."""
    files = _File("files")
    """What a script keeps with its run: its `run.dir`."""
    commands = _File("commands")
    address = _File("address")
    """Name of the socket to which ranks that report by `tuiapp.log` connect: see `tuiapp.trainers.run.local_node`."""
    secret = _File("secret")
    """What the agents of other nodes prove to know: see `tuiapp.trainers.run.handshake`."""
    port = _File("port")
    """Where they connect, as ADDRESS:PORT; empty if none may."""
    handover = _File("handover")
    """There while the run's Slurm job, which has begun, asks the process that waited for it for the lock."""
    job = _File("job")
    """Locked as long as the run's Slurm job exists, by the process that watches it."""
    queued = _File("queued")
    """The id of the run's Slurm job; there while that waits in the queue, whether or not a process watches it."""
    waits = _File("waits.json")
    """There while the run waits in the queue of its directory of runs: see `tuiapp.trainers.contract.sidecars`."""
    kept = _File("kept.json")
    """What is kept of a queued run from its start to its end: it may be tried again after a failure."""
    mirror = _File("mirror")
    """How far the run is mirrored: see `tuiapp.trainers.run.mirror`."""
    notice = _File("notice.json")
    """What to do at the end; removed by whoever does it: see `tuiapp.trainers.contract.sidecars`."""
    checkpoints = _File("checkpoints")
    """What the run can resume from: see `tuiapp.trainers.contract.manifest`."""
    export = _File("export")
    profiles = _File("profiles")
    """Traces of profiled steps: see `tuiapp.trainers.rank.profile`."""
    media = _File("media")
    """Pictures and texts: see `tuiapp.trainers.contract.media`."""
    lock = _File("lock")
    """Locked by the live supervisor; the kernel releases it when the supervisor dies."""

    @property
    def run_id(self) -> str:
        return self.path.name

    def rank(self, rank: int) -> Path:
        """Returns a rank's directory: stdout.log and stderr.log."""
        return self.path / "ranks" / str(rank)

    def is_gone(self) -> bool:
        try:
            self.path.stat()
        except OSError as error:
            return isinstance(error, FileNotFoundError | NotADirectoryError)
        return False

    def liveness(self) -> Liveness:
        """Returns who has the run."""
        # Asked of each of a thousand runs: as text, paths cost least.
        path = os.fspath(self.path)
        held = is_held(lock := f"{path}/{RunDir.lock.name}")
        if held:
            return Liveness.HELD
        if is_held(f"{path}/{RunDir.job.name}"):
            return Liveness.JOB
        if held is not None and is_beating(lock):
            return Liveness.ELSEWHERE
        if os.path.exists(f"{path}/{RunDir.queued.name}"):
            return Liveness.UNWATCHED_JOB
        if os.path.lexists(f"{path}/{RunDir.waits.name}"):
            return Liveness.WAITING
        return Liveness.UNKNOWN if held is None else Liveness.NOBODY

    def is_live(self) -> bool:
        """Returns whether anybody has the run; False if that cannot be determined."""
        return self.liveness().is_live

    def wait_until_over(self, timeout_s: float) -> bool:
        """Waits until nobody has the run; returns whether that came in time."""
        deadline = time.monotonic() + timeout_s
        while self.is_live():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def has_job(self) -> bool:
        """Returns whether the run has a Slurm job, which may start it, or start it again."""
        return os.path.exists(self.queued) or is_held(self.job) is True

    def queued_job(self) -> str:
        """Returns the id of the run's Slurm job while that waits in the queue; "" otherwise."""
        try:
            return read_limited(self.queued, MAX_JOB_BYTES).strip()
        except (OSError, ValueError):
            return ""

    def lock_note(self) -> LockNote:
        """Returns what the lock's holder notes in it; an empty note if it is missing or damaged."""
        return read_note(self.lock)

    def take_lock(self, timeout_s: float = LOCK_S) -> int:
        """Makes the caller the run's one live supervisor: see `tuiapp.trainers.contract.lock.take`."""
        return take(self.lock, timeout_s)

    def take_job(self) -> int:
        """Makes the caller the process that watches the run's Slurm job; as `take_lock`."""
        return take(self.job)


def default_runs_dir() -> Path:
    """Returns `TUIAPP_RUNS_DIR`, or `tuiapp/runs` in the user's data directory."""
    if chosen := os.environ.get("TUIAPP_RUNS_DIR"):
        return Path(os.path.expanduser(chosen)).absolute()
    return user_data() / "runs"


def find_run_dirs(runs_dir: Path) -> list[RunDir]:
    """Returns the runs of a directory, the oldest first; none if it cannot be listed."""
    try:
        names = [name for name in os.listdir(runs_dir) if RUN_ID.fullmatch(name)]
    except OSError:
        return []
    return [RunDir(runs_dir / name) for name in sorted(names)]


def new_run_id(backend: str, subject: str) -> str:
    """Returns `<UTC time>-<backend>-<subject>-<4 hex digits>`; of a file name what may stand in it."""
    now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return f"{now}-{backend}-{slug(subject)}-{os.urandom(2).hex()}"


def make_run_dir(runs_dir: Path, backend: str, subject: str) -> RunDir:
    """Makes an empty directory for a new run, with a unique name. Raises OSError if it cannot be made."""
    while True:
        run = RunDir(runs_dir / new_run_id(backend, subject))
        # Two runs that start within one second may draw the same digits.
        with contextlib.suppress(FileExistsError):
            run.path.mkdir(mode=0o700)
            return run


class HeldDirectory:
    """A directory kept open, which tells a deleted one from one that was moved."""

    def __init__(self, path: Path) -> None:
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def is_deleted(self) -> bool:
        """Returns whether the directory is known to be deleted; False if there was none."""
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
