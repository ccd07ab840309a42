"""The queue of a directory of runs: what waits in it, in which order, and who starts it.

A queued run is a run directory with a place in the queue (`tuiapp.trainers.contract.sidecars`). Whoever changes that
holds the run's lock meanwhile, as the process that starts it does: a run is started or cancelled, never both.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuiapp.trainers.config.datasets import Dataset
from tuiapp.trainers.config.files import make_private, open_regular, read_limited
from tuiapp.trainers.config.machine import Machine, inspect_machine, unused
from tuiapp.trainers.config.options import ConfigError, Problem
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.slurm import inside_allocation
from tuiapp.trainers.contract import process_identity
from tuiapp.trainers.contract.events import Queued
from tuiapp.trainers.contract.lock import LOCK_S, LockNote, alone, is_held, write_note
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import (
    About,
    Waiting,
    find_kept,
    find_waiting,
    read_waiting,
    write_waiting,
)
from tuiapp.trainers.experiments.daemon import Daemon
from tuiapp.trainers.launch.directory import make_directories, working_directory
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.launch.processes import apart
from tuiapp.trainers.launch.queued import end, has_started
from tuiapp.trainers.state.status import append_event, known
from tuiapp.trainers.state.summary import summarise

KEEPER = "tuiapp.trainers.experiments.queue_keeper"
MAX_FORECAST_BYTES = 4 << 20
BUSY_S = 5.0
"""How long to wait for the process that starts a run, which holds its lock."""
LOOK_S = 0.2
"""Seconds between two looks at whether a run has started."""


class QueueError(Exception):
    """What is asked of the queue is not possible; the message says why."""


class NotWaitingError(QueueError):
    """A run does not wait in the queue, or not any more."""


class NotStartedError(QueueError):
    """Runs are queued, and nothing can start them."""

    def __init__(self, runs: Sequence[RunDir], why: str) -> None:
        super().__init__(f"queued, but nothing starts {', '.join(run.run_id for run in runs)}: {why}.")
        self.runs = runs


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """How a queued run stands, as its keeper sees it."""

    reason: str = ""
    """Why it waits."""
    start: float | None = None
    """Unix time of its expected start; None if that is not known."""


class QueueFiles:
    """The queue's own files, in a directory beside the runs."""

    def __init__(self, runs_dir: Path) -> None:
        self.directory = runs_dir / ".queue"
        self.lock = self.directory / "lock"
        self.wake_file = self.directory / "bell"
        self.outlook = self.directory / "outlook.json"
        self.log = self.directory / "keeper.log"


def enqueue(config: RunConfig, runs_dir: Path, about: About | None = None, **fields: Any) -> RunDir:
    """Queues one run, as `enqueue_all` does several."""
    return enqueue_all([(config, about or About())], runs_dir, **fields)[0]


def enqueue_all(
    runs: Sequence[tuple[RunConfig, About]], runs_dir: Path, *, machine: Machine | None = None, **fields: Any
) -> list[RunDir]:
    """Puts new runs at the end of the queue, all or none, and sees to it that it has a keeper.

    The configurations are checked as at a launch, but for what is busy now; devices that they do not name are chosen
    when they start. `fields` has further ones of `Waiting`. Raises ConfigError, LaunchError, QueueError;
    NotStartedError once they are queued.
    """
    machine = machine or inspect_machine()
    plans = check_all([config for config, _ in runs], machine)
    environment, directory = apart(), working_directory() or "/"
    with _alone(runs_dir):
        entries = [entry.waiting.order for entry in find_waiting(runs_dir) if entry.waiting.is_known]
        first = max(entries, default=0.0) + 1

        def complete(number: int, run: RunDir) -> None:
            config, placed = runs[number][0], plans[number].config
            waiting = Waiting(
                order=first + number,
                platform=placed.platform,
                devices=len(config.device_ids) or (config.devices if placed.platform == "cuda" else placed.devices),
                device_ids=placed.device_ids if config.device_ids else (),
                per_device_batch_size=config.per_device_batch_size,
                on_slurm=config.launcher == "slurm",
                environment=environment,
                directory=directory,
                **fields,
            )
            mark_waiting(run, waiting)

        made = make_directories(
            [(plan, about) for plan, (_, about) in zip(plans, runs, strict=True)], runs_dir, machine, complete
        )
    if problem := start_keeper(runs_dir):
        raise NotStartedError(made, problem)
    return made


def check_all(configs: Sequence[RunConfig], machine: Machine) -> list[Plan]:
    """Checks configurations as a launch does, but for what is busy now, and data that they share once.

    Raises ConfigError, LaunchError.
    """
    examined: dict[tuple[object, ...], Dataset | None] = {}
    plans = list[Plan]()
    for config in configs:
        if config.launcher in ("join", "ssh"):
            reason = "cannot be queued: the queue starts runs on this machine, or with slurm on others."
            raise ConfigError([Problem("launcher", f"{config.launcher} {reason}")])
        if config.launcher == "slurm" and inside_allocation():
            reason = "slurm cannot be queued inside an allocation, whose nodes it would ask for: tuiapp run uses them."
            raise ConfigError([Problem("launcher", reason)])
        kind = (config.backend, config.python, config.dataset, config.context, config.image_size, config.seed)
        plans.append(prepare(config, unused(machine), data=examined.get(kind)))
        examined[kind] = plans[-1].facts
    return plans


def mark_waiting(run: RunDir, waiting: Waiting) -> None:
    """Gives a run, which nobody else has, its place in the queue. Raises OSError."""
    # The event first: with it alone the run is not queued, and without it a view would not know that it is.
    append_event(run, Queued(job="", reason="" if not waiting.tried else f"start {waiting.tried + 1}"))
    write_waiting(run.waits, waiting)


def change(runs_dir: Path, run: RunDir, **fields: object) -> None:
    """Changes fields of a run's `Waiting`. Raises QueueError if it does not wait, or cannot be written or started."""
    _change(run, **fields)
    if problem := start_keeper(runs_dir):
        raise NotStartedError([run], problem)


def _change(run: RunDir, **fields: object) -> None:
    with _own(run) as waiting:
        if not waiting.is_known:
            raise QueueError(f"{run.waits} cannot be read; the run can only be cancelled.")
        write_waiting(run.waits, msgspec.structs.replace(waiting, **fields))


def move(runs_dir: Path, run: RunDir, index: int) -> None:
    """Moves a run to a place of the queue, counted from 0; it gets the priority of those beside it.

    Raises QueueError.
    """
    with _alone(runs_dir):
        queue = find_waiting(runs_dir)
        moved = next((entry for entry in queue if entry.run.run_id == run.run_id), None)
        if moved is None:
            raise NotWaitingError(f"{run.run_id} does not wait in the queue.")
        neighbours = [entry for entry in queue if entry is not moved and entry.waiting.is_known]
        index = max(0, min(index, len(neighbours)))
        if not neighbours:
            return
        before = neighbours[max(0, index - 1)].waiting
        after = neighbours[min(index, len(neighbours) - 1)].waiting
        if index == 0:
            order = after.order - 1
        elif index == len(neighbours) or after.priority != before.priority:
            order = before.order + 1
        else:
            order = (before.order + after.order) / 2
            if not before.order < order < after.order:
                # No number is left between them.
                for number, entry in enumerate(neighbours):
                    with contextlib.suppress(QueueError):
                        _change(entry.run, order=float(number))
                order = index - 0.5
        change(runs_dir, run, order=order, priority=before.priority)


def cancel(runs_dir: Path, run: RunDir, reason: str = "cancelled in the queue") -> None:
    """Ends a run that waits, also one whose start takes long. Raises QueueError if it cannot be written.

    Raises NotWaitingError if it does not wait.
    """
    with _own(run, ends_start=True):
        end(run, "stopped", reason)
    wake_keeper(runs_dir)


def _end_start(run: RunDir) -> None:
    """Ends the process that starts a run: a driver, a file server or the user's code may never answer it."""
    note = run.lock_note()
    if os.path.lexists(run.waits) and not has_started(run) and note.machine == process_identity.machine():
        process_identity.kill_group(note.supervisor)


@contextlib.contextmanager
def _own(run: RunDir, *, ends_start: bool = False) -> Iterator[Waiting]:
    """Holds a waiting run's lock, so that nobody starts or cancels it meanwhile.

    With `ends_start` a start that takes longer than `BUSY_S` is ended for it.
    """
    deadline, lock = time.monotonic() + BUSY_S, -1
    try:
        while lock < 0:
            try:
                lock = run.take_lock(LOOK_S)
            except BlockingIOError:
                if not os.path.lexists(run.waits) or has_started(run) or time.monotonic() > deadline + LOCK_S:
                    raise
                if ends_start and time.monotonic() > deadline:
                    _end_start(run)
        with open(lock):
            # What was ended is nobody's supervisor.
            write_note(lock, LockNote(attempt=run.lock_note().attempt))
            waiting = read_waiting(run.waits)
            if waiting is None or has_started(run):
                raise NotWaitingError(f"{run.run_id} does not wait in the queue.")
            yield waiting
    except BlockingIOError:
        raise NotWaitingError(f"{run.run_id} does not wait in the queue any more: it has started.") from None
    except OSError as error:
        raise QueueError(f"Cannot write {run.path}: {error.strerror or error}.") from error


@contextlib.contextmanager
def _alone(runs_dir: Path) -> Iterator[None]:
    """Keeps others from changing the order meanwhile. Raises QueueError."""
    directory = QueueFiles(runs_dir).directory
    try:
        make_private(directory)
        with alone(directory):
            yield
    except OSError as error:
        raise QueueError(f"{directory} cannot be used for the queue: {error.strerror or error}.") from error


def is_transient(run: RunDir) -> bool:
    """Whether an ended run failed for want of a device, of the host's memory, of a node, or of its supervisor."""
    info = summarise(run)
    if info.status != "failed":
        return info.status == "lost"
    last = known(run).status.end
    return last is not None and last.transient


def wake_keeper(runs_dir: Path) -> None:
    """Tells the keeper that something has changed."""
    with contextlib.suppress(OSError):
        fd = open_regular(QueueFiles(runs_dir).wake_file, os.O_WRONLY | os.O_CREAT)
        os.utime(fd)
        os.close(fd)


def keeper_of(runs_dir: Path) -> Daemon:
    """Returns the queue's keeper, which may not run."""
    files = QueueFiles(runs_dir)
    return Daemon(files.lock, files.log, KEEPER, (str(runs_dir.absolute()),))


def start_keeper(runs_dir: Path) -> str:
    """Starts the queue's keeper unless there is one, or nothing waits but what is held; tells it to look.

    Returns why what waits cannot start; "" if it can.
    """
    # Looking at runs writes nothing.
    if not has_work(runs_dir):
        return ""
    keeper = keeper_of(runs_dir)
    try:
        make_private(keeper.lock.parent)
        wake_keeper(runs_dir)
        keeper.start(apart())
    except OSError as error:
        return f"the queue's keeper cannot be started: {error.filename or keeper.lock}: {error.strerror or error}"
    return keeper_trouble(runs_dir)


def keeper_trouble(runs_dir: Path) -> str:
    """Says why the queue's keeper starts nothing; "" if all is well, or nobody keeps it."""
    trouble = keeper_of(runs_dir).trouble()
    return trouble and f"the queue's keeper starts nothing: {trouble}"


def keep_alive(run: RunDir) -> None:
    """Starts the keeper of a waiting run's queue if it has none, as after a reboot."""
    if not is_held(QueueFiles(run.path.parent).lock):
        start_keeper(run.path.parent)


def has_work(runs_dir: Path) -> bool:
    """Whether anything waits that is not held, or is to be tried again if it has failed."""
    waits = any(not entry.waiting.held for entry in find_waiting(runs_dir))
    return waits or any(entry.waiting.retry for entry in find_kept(runs_dir))


def outlook(runs_dir: Path) -> Mapping[str, Outlook]:
    """Returns how the queued runs stand, by run id; empty if nobody has looked yet."""
    try:
        text = read_limited(QueueFiles(runs_dir).outlook, MAX_FORECAST_BYTES)
        return msgspec.json.decode(text, type=dict[str, Outlook])
    except (OSError, ValueError, RecursionError):
        return {}
