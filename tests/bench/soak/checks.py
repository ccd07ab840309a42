"""What must hold after each run of a soak, whatever happened to it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.bench.soak.faults import Outcome, Plan
from tests.kit.whole_curve import missing_steps, not_in_a_row, what_lacks
from tuiapp.trainers.contract.events import AnyEvent, Checkpoint, Metrics, RankStarted, RunStarted
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.contract.orphans import TOKEN
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.history import find_gaps
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise

GONE_S = 30.0
"""Until the last process has ended; ranks without supervisor and reaper take 5 s."""


class Problem(NamedTuple):
    """Something that should not be."""

    kind: str
    text: str


def check_run(plan: Plan, outcome: Outcome) -> list[Problem]:
    """Look at what a run has left."""
    found = [*_orphans(outcome.run.run), *_directory(outcome), *_journal(outcome)]
    return [Problem(one.kind, f"{outcome.run.run.run_id}: {one.text}") for one in found]


def shared_memory() -> set[str]:
    """What lies in /dev/shm that no live process has made by its name's pid."""
    try:
        names = os.listdir("/dev/shm")
    except OSError:
        return set()
    return {name for name in names if not any(psutil.pid_exists(int(part)) for part in _numbers(name))}


def _numbers(name: str) -> list[str]:
    return [part for part in name.replace("-", "_").replace(".", "_").split("_") if part.isdigit() and len(part) < 8]


def sockets_left(place: str) -> list[str]:
    """Listening sockets of processes that belong to the runs in a directory, and socket files in it."""
    left = [str(path) for path in Path(place).rglob("*") if path.is_socket()]
    for process in psutil.process_iter():
        try:
            if place in " ".join(process.cmdline()) and process.pid != os.getpid():
                left += [
                    f"pid {process.pid}: {one.laddr}" for one in process.net_connections() if one.status == "LISTEN"
                ]
        except psutil.Error:
            continue
    return left


def _orphans(run: RunDir) -> list[Problem]:
    deadline = time.monotonic() + GONE_S
    while (left := _processes(run)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        process.kill()
    return [Problem("orphan", str(process)) for process in left]


def _processes(run: RunDir) -> list[psutil.Process]:
    left = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            token = process.environ().get(TOKEN, "")
            if token.startswith(run.run_id) or str(run.path) in process.cmdline():
                left.append(process)
        except psutil.Error:
            continue
    return left


def _directory(outcome: Outcome) -> list[Problem]:
    run = outcome.run.run
    try:
        info = summarise(run)
        read_config(run)
        _, damaged = list_checkpoints(run.checkpoints)
    except Exception as error:
        return [Problem("unreadable", repr(error))]
    found = [Problem("unreadable", f"checkpoint: {one}") for one in damaged]
    if info.problem:
        found.append(Problem("unreadable", info.problem))
    if info.status not in outcome.expected:
        found.append(Problem("unexpected", f"{info.status}, not {outcome.expected}: {info.reason}"))
    return found


def _journal(outcome: Outcome) -> list[Problem]:
    run = outcome.run
    found = []
    run.of(Metrics)
    if [event.seq for event in run.events] != list(range(1, len(run.events) + 1)):
        found.append(Problem("incomplete journal", "its events are not numbered in a row"))
    # Of a script nothing says which steps, evaluations and checkpoints are due.
    own = read_config(run.run).backend == "script"
    found += [Problem("incomplete journal", text) for text in (not_in_a_row(run.events) if own else _curve(outcome))]
    elsewhere = {event.rank for event in run.of(RankStarted) if event.node}
    for rank in sorted({event.rank for event in run.of(RankStarted)}):
        steps = run.steps_of(rank)
        reported = _witnessed(outcome.witness, rank)
        # What was on its way into a supervisor or agent that was killed is lost with it; all else stands there.
        lost = outcome.killed_supervisor or (outcome.killed_agent and rank in elsewhere)
        if not lost and reported > (steps[-1] if steps else 0):
            found.append(
                Problem("incomplete journal", f"rank {rank} reported step {reported:,}, it has {len(steps):,}")
            )
    return found


def _curve(outcome: Outcome) -> list[str]:
    """What is wrong with the curve: a gap, or one that is not named where nothing could be done about it."""
    run = outcome.run
    missing = missing_steps(run.events) if len(run.of(RunStarted)) > 1 else []
    first = next((place for place, event in enumerate(run.events) if _resumes(event)), len(run.events))
    last: dict[int, int] = {}
    for event in run.events[:first]:
        if isinstance(event, Metrics):
            last[event.rank] = event.last_step
    reached = min((last.get(rank, 0) for rank in range(run.started.world_size)), default=0)
    recorded = any(isinstance(event, Checkpoint) and event.step <= reached for event in run.events[:first])
    named = [step for one in find_gaps(run.run.journal).spans for step in range(one[0], one[1] + 1)]
    if missing != named:
        return [f"{len(missing)} steps are missing, {len(named)} named: {missing[:1]} to {missing[-1:]}"]
    if first < len(run.events) and not recorded:
        # Before the first checkpoint is on record a death costs a part of the curve, which is named.
        return []
    if outcome.expected == ("completed",):
        return what_lacks(run.events, read_config(run.run))
    return not_in_a_row(run.events)


def _resumes(event: AnyEvent) -> bool:
    return isinstance(event, RunStarted) and event.attempt > 1


def _witnessed(witness: Path, rank: int) -> int:
    """The last step that a rank has sent, by its own account."""
    try:
        return int((witness / str(rank)).read_bytes().split()[-1])
    except (OSError, IndexError):
        return 0
