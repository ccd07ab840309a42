"""Reports ranks that make no progress: a hang, with the stacks of all ranks, or a process stopped by a signal.

Each rank reports its step once a second (`wire.Heartbeat`), from a thread that neither training nor a device can block.
Ranks wait for each other in collectives, so one that is stuck blocks all others, one step behind them. Where all are at
the same step, their stacks, or the collectives that they have begun, tell which one is elsewhere.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tuiapp.trainers.config.files import open_regular
from tuiapp.trainers.config.options import hang_limit_s
from tuiapp.trainers.contract.events import Alert, Event, LogLine, PhaseName, Stacks
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.stacks import COLLECTIVES_FILE, FILE, Collectives, ask
from tuiapp.trainers.state.messages import MOST_RANKS, describe_ranks, listed

if TYPE_CHECKING:
    from tuiapp.trainers.run.ranks import Rank

SLOWEST_TIMES = 5.0
"""Factor of the longest time so far, which a slow phase is given."""
PHASE_LIMITS_S: dict[PhaseName, float] = {
    "preparing": 900.0,
    "connecting": 90.0,
    "compiling": 1800.0,
    "evaluating": 300.0,
    "checkpointing": 600.0,
    "profiling": 600.0,
    "stopping": 600.0,
}
"""Limits before this run has a time of its own; data may have to be downloaded, or code compiled."""
NOT_CONNECTED = (
    "GPUs that cannot reach each other's memory hang here: try NCCL_P2P_DISABLE=1 (RTX 3090 and 4090, an IOMMU), "
    "and in a container a larger --shm-size"
)
SUSPENDED_S = 5.0
"""If the supervisor itself has not run for this long, the ranks may have been suspended with it."""

MAX_BYTES = 64 * 1024
ANSWER_S = 3.0
"""Time for a rank on a busy machine to write."""
SIGNAL_AFTER_S = 1.5
"""A rank that was asked over its pipe, and has written nothing for this long, gets the signal."""
SETTLED_S = 0.2
"""A rank that has written nothing more for this long is done."""

_CONTROL = re.compile(r"[^\t\n -~\u00a0-\U0010ffff]")
_COLLECTIVE = re.compile(
    r"distributed_c10d\.py|_engine_run_backward|streams\.py.* in synchronize|all_reduce|all_gather|broadcast|barrier"
)
WAITING_FRAMES = 4
"""A rank waits in a collective if one of this many innermost Python frames names one."""
_COLLECTIVES = re.compile(r"^Collectives: (\d+) begun, (\d+) done(?:; waits for (.+))?$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)

LOOK_S = 1.0


class Watchdog:
    """`place_of` returns a rank's node, "" on one machine; `unreachable` the ranks of silent nodes."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        place_of: Callable[[int], str] = lambda rank: "",
        unreachable: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self._emit, self._place_of, self._find_unreachable = emit, place_of, unreachable
        self._unreachable: Mapping[int, str] = {}
        self._watch = HangWatch()
        self._looked = 0.0
        self._dump: StackDump | None = None
        self._hang: tuple[float, dict[int, RankProgress], list[int]] = 0.0, {}, []
        self._late: int | None = None
        self._stopped: set[int] = set()
        self._ended: list[int] = []
        """Ranks that have ended without failing."""

    def on_heartbeat(self, heartbeat: wire.Heartbeat, now: float) -> None:
        self._watch.on_progress(heartbeat.rank, RankProgress(heartbeat.step, heartbeat.phase), now)

    def on_stacks(self, stacks: Stacks) -> None:
        """Takes the stacks of a rank on another node; they are dropped if nobody waits for them any more."""
        if self._dump is not None:
            self._dump.on_stacks(stacks)

    def forget(self, rank: int) -> None:
        self._watch.forget(rank)
        self._stopped.discard(rank)

    def note_end(self, rank: int) -> None:
        """Notes that a rank has ended without failing: the others may wait for it."""
        self._ended.append(rank)

    def advance(self, now: float, live: Mapping[int, Rank]) -> None:
        if self._dump is not None and self._dump.is_complete(now):
            self._report_hang(self._dump)
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        unreachable = self._find_unreachable()
        silent = self._watch.poll(now, [number for number, rank in live.items() if rank.is_stopped()], unreachable)
        self._report_stopped(now, live)
        if (lasted := self._watch.over(now)) is not None:
            if self._dump is not None:
                # A rank made progress before all have written: an alert that ends must have begun.
                self._report_hang(self._dump)
            text = f"the run continues after {lasted:.0f} s without progress"
            self._emit(Alert(kind="hang", severity="info", rank=self._late, text=text, ended=True))
        if silent is not None:
            # Recorded now: the report describes the moment their stacks were requested.
            self._hang = silent, self._watch.progress_by_rank(), self._watch.behind()
            self._unreachable = unreachable
            self._dump = StackDump(live, now)

    def _report_hang(self, dump: StackDump) -> None:
        self._dump = None
        silent, progress_by_rank, behind = self._hang
        stacks = dump.read()
        for report in stacks:
            self._emit(report)
        if mute := sorted(set(progress_by_rank) - {report.rank for report in stacks} - set(self._unreachable)):
            who = describe_ranks(mute, self._place_of)
            self._emit(LogLine(rank=None, stream="run", text=f"{who} gave no Python stacks"))
        if self._unreachable:
            behind = []
        suspicion = None if behind or self._unreachable else suspect(stacks, self._place_of)
        elsewhere = suspicion.text if suspicion else ""
        text = describe(silent, progress_by_rank, behind, elsewhere, self._place_of, self._unreachable)
        behind = suspicion.ranks if suspicion else behind
        if not self._unreachable and (collective := suspect_collective(stacks, self._place_of)):
            text = f"{text}; {collective.text}"
            behind = behind or collective.ranks
        if self._ended:
            have = "has" if len(self._ended) == 1 else "have"
            text = f"{text}; {describe_ranks(sorted(self._ended), self._place_of)} {have} ended"
        self._late = behind[0] if len(behind) == 1 else None
        step = min((progress.step for progress in progress_by_rank.values()), default=None)
        several = sorted(self._unreachable) or (behind if self._late is None else [])
        self._emit(Alert(kind="hang", severity="error", rank=self._late, ranks=several, step=step, text=text))

    def _report_stopped(self, now: float, live: Mapping[int, Rank]) -> None:
        stopped = set(self._watch.stopped(now)) & set(live)
        for number in sorted(stopped - self._stopped):
            who, there = describe_ranks([number], self._place_of), ", there" if self._place_of(number) else ""
            cure = f"To continue{there}: kill -CONT {live[number].pid}"
            text = f"{who} is stopped (SIGSTOP, or a debugger), the others wait. {cure}"
            self._emit(Alert(kind="stopped", rank=number, text=text))
        for number in sorted(self._stopped - stopped):
            text = f"{describe_ranks([number], self._place_of)} is no longer stopped"
            self._emit(Alert(kind="stopped", severity="info", rank=number, text=text, ended=True))
        self._stopped = stopped


class RankProgress(NamedTuple):
    step: int
    """The last step started."""
    phase: PhaseName


@dataclass
class _Watched:
    progress: RankProgress
    since: float
    stopped_at: float | None = None


@dataclass
class HangWatch:
    limit_s: float = field(default_factory=hang_limit_s)
    hung_since: float | None = None
    """Start of the reported hang; None if there is none."""
    _ranks: dict[int, _Watched] = field(default_factory=dict)
    _slowest: dict[PhaseName, float] = field(default_factory=dict)
    _looked: float | None = None

    def on_progress(self, rank: int, progress: RankProgress, now: float) -> None:
        watched = self._ranks.get(rank)
        if watched is None:
            self._ranks[rank] = _Watched(progress, now)
        elif watched.progress != progress:
            phase = watched.progress.phase
            if self.hung_since is None and watched.progress.step:
                # The very first step, and a hang, say nothing about usual times.
                self._slowest[phase] = max(self._slowest.get(phase, 0.0), now - watched.since)
            watched.progress, watched.since = progress, now

    def forget(self, rank: int) -> None:
        self._ranks.pop(rank, None)

    def poll(self, now: float, stopped: Iterable[int] = (), unreachable: Container[int] = ()) -> float | None:
        """Returns seconds without progress, if worth reporting; `now` is monotonic; call about once a second.

        What ranks that are `unreachable` did last is as old as their last message: the others say how long to wait.
        """
        before, self._looked = self._looked, now
        still = set(stopped)
        suspended = before is not None and now - before > SUSPENDED_S
        if (still or suspended) and self.hung_since is None:
            # The ranks wait for the stopped one, or did not run either: their time restarts.
            for rank in self._ranks.values():
                rank.since = now
        for number, rank in self._ranks.items():
            rank.stopped_at = (rank.stopped_at or now) if number in still else None
        unfinished = {number: rank for number, rank in self._ranks.items() if rank.progress.phase != "done"}
        waiting = [rank for number, rank in unfinished.items() if number not in unreachable] or [*unfinished.values()]
        if not waiting or still:
            return None
        silent = now - max(rank.since for rank in waiting)
        if self.hung_since is not None or silent < max(self._limit(rank.progress.phase) for rank in waiting):
            return None
        self.hung_since = now - silent
        return silent

    def over(self, now: float) -> float | None:
        """Returns the length of the reported hang once, as soon as some rank makes progress; else None."""
        if self.hung_since is None or all(rank.since <= self.hung_since + 1e-6 for rank in self._ranks.values()):
            return None
        lasted, self.hung_since = now - self.hung_since, None
        return lasted

    def stopped(self, now: float) -> list[int]:
        after = min(10.0, self.limit_s)
        return [n for n, rank in self._ranks.items() if rank.stopped_at is not None and now - rank.stopped_at >= after]

    def progress_by_rank(self) -> dict[int, RankProgress]:
        return {n: rank.progress for n, rank in sorted(self._ranks.items()) if rank.progress.phase != "done"}

    def behind(self) -> list[int]:
        steps = {number: progress.step for number, progress in self.progress_by_rank().items()}
        return [number for number, step in steps.items() if step < max(steps.values())]

    def _limit(self, phase: PhaseName) -> float:
        usual = SLOWEST_TIMES * self._slowest.get(phase, 0.0)
        if phase == "training":
            return max(self.limit_s, usual)
        if phase == "evaluating" and usual:
            # The same work each time.
            return max(2 * self.limit_s, usual)
        return max(PHASE_LIMITS_S.get(phase, 0.0), usual)


def describe(
    silent_s: float,
    progress_by_rank: dict[int, RankProgress],
    behind: list[int],
    elsewhere: str = "",
    place_of: Callable[[int], str] = lambda rank: "",
    unreachable: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """Describes a hang; `elsewhere` says how some ranks differ from others at the same step, if known.

    `place_of` returns a rank's node, or "" on one machine; `unreachable` are the ranks whose node does not
    answer, and its name: nobody knows where they are.
    """
    if unreachable:
        progress_by_rank = {rank: progress for rank, progress in progress_by_rank.items() if rank not in unreachable}
    step = max((progress.step for progress in progress_by_rank.values()), default=0)
    phases = {progress.phase for progress in progress_by_rank.values()}
    nothing = f"no progress for {silent_s:.0f} s"
    if unreachable:
        names = list(dict.fromkeys(unreachable.values()))
        at = f"; the other ranks are at step {step:,}" if progress_by_rank else ""
        return f"{nothing}: {listed(names)} {'does' if len(names) == 1 else 'do'} not answer{at}"
    if not behind:
        at = f"at step {step:,}" if step else "before the first step"
        if phases == {"connecting"}:
            elsewhere = NOT_CONNECTED
        doing = f" ({phases.pop()})" if len(phases) == 1 else ""
        who = "all ranks are" if len(progress_by_rank) > 1 else "the rank is"
        return f"{nothing}: {who} {at}{doing}{'; ' + elsewhere if elsewhere else ''}"
    waiting = [rank for rank in progress_by_rank if rank not in behind]
    steps = sorted({progress_by_rank[rank].step for rank in behind})
    where = f"at step {steps[0]:,}" if len(steps) == 1 else f"at steps {steps[0]:,} to {steps[-1]:,}"
    verb = "is" if len(behind) == 1 else "are"
    verb_of_waiting = "waits" if len(waiting) == 1 else "wait"
    late_ones = describe_ranks(behind, place_of)
    waiting_text = describe_ranks(waiting) if len(waiting) <= MOST_RANKS else f"the {len(waiting)} others"
    return f"{nothing}: {late_ones} {verb} behind, {where}; {waiting_text} {verb_of_waiting} at step {step:,}"


class StackDump:
    """Requests stacks from ranks, and collects them without waiting; an agent's come by `on_stacks`."""

    def __init__(self, ranks: Mapping[int, Rank], now: float) -> None:
        self._pids = {number: rank.pid for number, rank in ranks.items()}
        self._paths = {number: rank.directory / FILE for number, rank in ranks.items() if rank.directory is not None}
        self._before = {rank: _size(path) for rank, path in self._paths.items()}
        self._reported = {rank: path.with_name(COLLECTIVES_FILE) for rank, path in self._paths.items()}
        self._reported_before = {rank: _size(path) for rank, path in self._reported.items()}
        self._sizes = dict(self._before)
        self._began = self._grown = now
        # Without the file, the handler is the script's own.
        self._requested = [
            number for number, path in self._paths.items() if os.path.exists(path) and ranks[number].ask_stacks()
        ]
        self._signalled = False
        self._awaited = {number for number, rank in ranks.items() if rank.directory is None and rank.ask_stacks()}
        self._heard: list[Stacks] = []

    def on_stacks(self, stacks: Stacks) -> None:
        """Takes a remote rank's stacks; without text it has written none."""
        self._awaited.discard(stacks.rank)
        self._heard.append(stacks)

    def is_complete(self, now: float) -> bool:
        sizes = {rank: _size(path) for rank, path in self._paths.items()}
        if sizes != self._sizes:
            self._sizes, self._grown = sizes, now
        mute = [rank for rank in self._requested if sizes[rank] == self._before[rank]]
        if now - self._began >= SIGNAL_AFTER_S and not self._signalled:
            self._signalled = True
            for rank in mute:
                ask(self._pids[rank])
        answered = not self._awaited and not mute
        return (answered and now - self._grown >= SETTLED_S) or now - self._began >= ANSWER_S

    def read(self) -> list[Stacks]:
        """Returns each rank's stacks, safe for a screen; ranks that wrote nothing are left out."""
        written = []
        for rank, path in self._paths.items():
            if text := _read(path, self._before[rank]):
                reported = _read(self._reported[rank], self._reported_before[rank])
                text = f"{reported}\n\n{text}" if reported else text
                written.append(Stacks(rank=rank, pid=self._pids[rank], text=text))
        return [stacks for stacks in (*written, *self._heard) if stacks.text]


class Suspicion(NamedTuple):
    ranks: list[int]
    text: str


def suspect(stacks: list[Stacks], place_of: Callable[[int], str] = lambda rank: "") -> Suspicion | None:
    """Finds, among ranks at the same step, those that are elsewhere than the others; None if all agree.

    Ranks in a collective wait for those outside it; failing that, a single rank is elsewhere than the rest.
    """
    frames = {report.rank: _main_thread(report.text) for report in stacks}
    waiting = [rank for rank, calls in frames.items() if any(map(_COLLECTIVE.search, calls[:WAITING_FRAMES]))]
    apart = [rank for rank in frames if rank not in waiting]
    if not waiting:
        counts = Counter(calls[0] for calls in frames.values() if calls)
        apart = [rank for rank, calls in frames.items() if calls and counts[calls[0]] == 1]
        if len(counts) != 2 or len(apart) != 1:
            return None
    if not apart or len(apart) == len(frames):
        return None
    who = describe_ranks(apart, place_of)
    doing = "wait in a collective" if waiting else "are together elsewhere"
    where = f": {frames[apart[0]][0]}" if frames[apart[0]] else ""
    return Suspicion(apart, f"{who} {'is' if len(apart) == 1 else 'are'} not where the others {doing}{where}")


def suspect_collective(stacks: list[Stacks], place_of: Callable[[int], str] = lambda rank: "") -> Suspicion | None:
    """Finds the ranks that have not begun a collective in which others wait; None if nobody is known to wait in one."""
    reported = {
        report.rank: Collectives(int(match[1]), int(match[2]), match[3] or "")
        for report in stacks
        if (match := _COLLECTIVES.search(report.text)) is not None
    }
    waiting = {rank: counts for rank, counts in reported.items() if counts.begun > counts.done}
    if not waiting:
        return None
    number = min(counts.done for counts in waiting.values()) + 1
    first = next(counts.waits_for for counts in waiting.values() if counts.done + 1 == number)
    what = f"collective {number:,}" + (f", {first}" if first else "")
    if apart := [rank for rank, counts in reported.items() if counts.begun < number]:
        verb = "has" if len(apart) == 1 else "have"
        return Suspicion(apart, f"{describe_ranks(apart, place_of)} {verb} not begun {what}, in which others wait")
    return Suspicion([], f"all have begun {what}, and none has done it") if len(waiting) == len(stacks) > 1 else None


def _main_thread(text: str) -> list[str]:
    """Returns the frames of the main thread, which faulthandler writes last; the innermost comes first."""
    last = text[max(0, text.rfind("hread 0x")) :]
    frames = _FRAME.finditer(last)
    return [f"{Path(frame['file']).name}, line {frame['line']}, in {frame['function']}" for frame in frames]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, offset: int) -> str:
    with suppress(OSError), open(open_regular(path), "rb") as file:
        file.seek(offset)
        return _CONTROL.sub("�", file.read(MAX_BYTES).decode(errors="replace")).strip()
    return ""
