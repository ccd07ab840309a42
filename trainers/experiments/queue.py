"""The queue of a directory of runs: what waits in it, in which order, and who starts it.

A queued run is a run directory with a place in the queue (`tuiapp.trainers.contract.waiting`). Whoever changes that
holds the run's lock meanwhile, as the keeper does who starts it: a run is started or cancelled, never both.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, write_atomically
from tuiapp.trainers.config.machine import Machine, inspect_machine, unused
from tuiapp.trainers.config.options import ConfigError, Problem
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.about import About
from tuiapp.trainers.contract.events import Queued, RunEnded, Status
from tuiapp.trainers.contract.lock import is_held
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.waiting import Waiting, find_kept, find_waiting, read_waiting, write_waiting
from tuiapp.trainers.launch.directory import make_directory, working_directory
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.launch.processes import TOO_SLOW, apart, module, start_process
from tuiapp.trainers.state.status import append, known
from tuiapp.trainers.state.summary import RunInfo, summarise

KEEPER = "tuiapp.trainers.experiments.keeper"
_FORMER = b"trainers.experiments.keeper"
"""The keeper's module before 0.3: one that has lived through the upgrade can start nothing."""
MAX_FORECAST_BYTES = 4 << 20
BUSY_S = 5.0
"""How long to wait for the keeper, which holds a run's lock while it starts it."""


class QueueError(Exception):
    """What is asked of the queue is not possible; the message says why."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """How a queued run stands, as its keeper sees it."""

    reason: str = ""
    """Why it waits."""
    start: float | None = None
    """Unix time of its expected start; None if that is not known."""


class _Files:
    """The queue's own files, in a directory beside the runs."""

    def __init__(self, runs_dir: Path) -> None:
        self.directory = runs_dir / ".queue"
        self.lock = self.directory / "lock"
        self.bell = self.directory / "bell"
        self.outlook = self.directory / "outlook.json"
        self.log = self.directory / "keeper.log"


def files_of(runs_dir: Path) -> _Files:
    """Returns where the queue of a directory of runs has its files."""
    return _Files(runs_dir)


def enqueue(
    config: RunConfig,
    runs_dir: Path,
    about: About | None = None,
    *,
    machine: Machine | None = None,
    priority: int = 0,
    retry: int = 0,
    exclusive: bool = False,
    parallel: int = 0,
    held: bool = False,
) -> RunDir:
    """Puts a new run at the end of the queue; returns its directory. `start_keeper` sees to it that it starts.

    The configuration is checked as at a launch, but for what is busy now; GPUs that it does not name are chosen when it
    starts. `Waiting` says what the other arguments are. Raises ConfigError, LaunchError.
    """
    if config.launcher in ("join", "ssh"):
        message = f"{config.launcher} cannot be queued: the queue starts runs on this machine, or with slurm on others."
        raise ConfigError([Problem("launcher", message)])
    machine = machine or inspect_machine()
    plan = prepare(config, unused(machine))
    run = make_directory(plan, runs_dir, machine, about or About())
    waiting = Waiting(
        order=time.time(),
        priority=priority,
        retry=retry,
        exclusive=exclusive,
        parallel=parallel,
        held=held,
        platform=plan.config.platform,
        devices=len(config.device_ids) or (config.devices if plan.config.platform == "cuda" else plan.config.devices),
        device_ids=plan.config.device_ids if config.device_ids else (),
        per_device_batch_size=config.per_device_batch_size,
        on_slurm=config.launcher == "slurm",
        environment=apart(),
        directory=working_directory() or "/",
    )
    lock = run.take_lock()
    try:
        put(run, waiting)
    finally:
        os.close(lock)
    return run


def add(config: RunConfig, runs_dir: Path, about: About | None = None, **place: Any) -> RunDir:
    """As `enqueue`, and sees to it that the queue has a keeper."""
    run = enqueue(config, runs_dir, about, **place)
    start_keeper(runs_dir)
    return run


def put(run: RunDir, waiting: Waiting) -> None:
    """Gives a run, whose lock the caller holds, its place in the queue. Raises OSError."""
    # The event first: with it alone the run is not queued, and without it a view would not know that it is.
    append(run, Queued(job="", reason="" if not waiting.tried else f"start {waiting.tried + 1}"))
    write_waiting(run.waits, waiting)


def change(runs_dir: Path, run: RunDir, **fields: object) -> None:
    """Changes fields of a run's `Waiting`. Raises QueueError if it does not wait, or cannot be written."""
    with _own(run) as waiting:
        write_waiting(run.waits, msgspec.structs.replace(waiting, **fields))
    ring(runs_dir)
    start_keeper(runs_dir)


def move(runs_dir: Path, run: RunDir, place: int) -> None:
    """Moves a run to a place of the queue, counted from 0; it gets the priority of those beside it.

    Raises QueueError.
    """
    queue = find_waiting(runs_dir)
    moved = next((one for one in queue if one.run.run_id == run.run_id), None)
    if moved is None:
        raise QueueError(f"{run.run_id} does not wait in the queue.")
    others = [one for one in queue if one is not moved]
    place = max(0, min(place, len(others)))
    before, after = others[:place][-1:], others[place:][:1]
    if not others:
        return
    priority = (before or after)[0].waiting.priority
    low = before[0].waiting.order if before else None
    high = after[0].waiting.order if after and after[0].waiting.priority == priority else None
    if low is not None and high is not None:
        order = (low + high) / 2
    else:
        order = low + 1.0 if low is not None else (high or time.time()) - 1.0
    change(runs_dir, run, order=order, priority=priority)


def cancel(runs_dir: Path, run: RunDir, reason: str = "cancelled in the queue") -> None:
    """Ends a run that waits. Raises QueueError if it does not, or cannot be written."""
    with _own(run):
        end(run, "stopped", reason)
    ring(runs_dir)


def end(run: RunDir, status: Status, reason: str) -> None:
    """Ends a queued run, whose lock the caller holds. Raises OSError."""
    append(run, RunEnded(status=status, reason=reason, summary=summarise(run).summary))
    run.waits.unlink(missing_ok=True)


@contextlib.contextmanager
def _own(run: RunDir) -> Iterator[Waiting]:
    """Holds a waiting run's lock, so that nobody starts or cancels it meanwhile."""
    try:
        lock = run.take_lock(BUSY_S)
    except BlockingIOError:
        raise QueueError(f"{run.run_id} does not wait in the queue any more: it has started.") from None
    except OSError as error:
        raise QueueError(f"Cannot write {run.path}: {error.strerror or error}.") from error
    try:
        waiting = read_waiting(run.waits)
        if waiting is None or has_started(run):
            raise QueueError(f"{run.run_id} does not wait in the queue.")
        yield waiting
    except OSError as error:
        raise QueueError(f"Cannot write {run.path}: {error.strerror or error}.") from error
    finally:
        os.close(lock)


def has_started(run: RunDir) -> bool:
    """Whether a run has been started since it was queued, by a keeper that could not note it any more."""
    status = known(run).status
    return bool(status.queued.job if status.queued else status.begun or status.end)


def is_transient(run: RunDir) -> bool:
    """Whether an ended run failed for want of a device, of the host's memory, of a node, or of its supervisor.

    Also if that did not start in time.
    """
    info = summarise(run)
    if info.status != "failed":
        return info.status == "lost"
    end = known(run).status.end
    return info.reason.startswith(TOO_SLOW) or (end is not None and end.transient)


def ring(runs_dir: Path) -> None:
    """Tells the keeper that something has changed."""
    with contextlib.suppress(OSError):
        files_of(runs_dir).bell.touch()


def start_keeper(runs_dir: Path) -> None:
    """Starts the queue's keeper unless there is one, or nothing waits but what is held; rings its bell."""
    files = files_of(runs_dir)
    with contextlib.suppress(OSError):
        if not files.directory.exists() and not has_work(runs_dir):
            # Looking at runs writes nothing.
            return
        make_private(files.directory)
        files.bell.touch()
        if (is_held(files.lock) and not _end_former_keeper(runs_dir)) or not has_work(runs_dir):
            return
        start_process(files.log, module(KEEPER, str(runs_dir.absolute())), environment=apart(), directory="/")


def _end_former_keeper(runs_dir: Path) -> bool:
    """Ends a keeper that was started before an upgrade took its modules away; returns whether there was one."""
    directory, ended = os.fsencode(runs_dir.absolute()), False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if _FORMER in words and directory in words:
                os.kill(int(process.name), signal.SIGKILL)
                ended = True
    return ended


def keep_alive(run: RunDir) -> None:
    """Starts the keeper of a waiting run's queue if it has none, as after a reboot."""
    runs_dir = run.path.parent
    if not is_held(files_of(runs_dir).lock) and (waiting := read_waiting(run.waits)) and not waiting.held:
        start_keeper(runs_dir)


def has_work(runs_dir: Path) -> bool:
    """Whether anything waits that is not held, or is to be tried again if it has failed."""
    waits = any(not one.waiting.held for one in find_waiting(runs_dir))
    return waits or any(one.waiting.retry for one in find_kept(runs_dir))


def outlook(runs_dir: Path) -> Mapping[str, Outlook]:
    """Returns how the queued runs stand, by run id; empty if nobody has looked yet."""
    try:
        text = read_limited(files_of(runs_dir).outlook, MAX_FORECAST_BYTES)
        return msgspec.json.decode(text, type=dict[str, Outlook])
    except (OSError, ValueError, RecursionError):
        return {}


def write_outlook(runs_dir: Path, known: Mapping[str, Outlook]) -> None:
    """Writes what `outlook` reads."""
    with contextlib.suppress(OSError):
        write_atomically(files_of(runs_dir).outlook, msgspec.json.encode(known))


def placed(infos: Sequence[RunInfo]) -> list[RunInfo]:
    """Returns the same runs; those that wait in the queue with their place, and why and how long they wait."""
    queue = [info for info in infos if info.waiting is not None]
    if not queue:
        return [*infos]
    known = dict[str, Outlook]()
    for directory in {info.directory.path.parent for info in queue}:
        known |= outlook(directory)
    queue.sort(key=lambda info: (info.waiting.rank if info.waiting else (), info.directory.run_id))
    found = {
        info.directory: replace(info, place=place, reason=_words(info, known.get(info.directory.run_id, Outlook())))
        for place, info in enumerate(queue, start=1)
    }
    return [found.get(info.directory, info) for info in infos]


def describe_place(run: RunDir) -> str:
    """Says which place a waiting run has in the queue, why it waits, and when it is expected to start."""
    queue = find_waiting(run.path.parent)
    place = next((n for n, one in enumerate(queue, start=1) if one.run.run_id == run.run_id), None)
    if place is None:
        return ""
    info = replace(summarise(run), waiting=queue[place - 1].waiting, reason="")
    seen = outlook(run.path.parent).get(run.run_id, Outlook())
    return ", ".join(filter(None, (f"number {place} of {len(queue)}", _words(info, seen))))


def _words(info: RunInfo, seen: Outlook) -> str:
    if info.waiting is not None and info.waiting.held:
        return "held"
    start = f"expected to start {clock(seen.start)}" if seen.start else ""
    return ", ".join(filter(None, (seen.reason, start))) or info.reason


def clock(moment: float) -> str:
    """Formats a Unix time of the next days: "19:05", or "Thu 19:05" if that is not today."""
    local = time.localtime(moment)
    return time.strftime("%H:%M" if local.tm_yday == time.localtime().tm_yday else "%a %H:%M", local)
