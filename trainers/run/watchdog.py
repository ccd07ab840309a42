"""Reports ranks that make no progress: a hang, with the stacks of all ranks, or a process stopped by a signal.

Each rank reports its step once a second (`wire.Heartbeat`), from a thread that neither training nor a device can block.
Ranks wait for each other in collectives, so one that is stuck blocks all others, one step behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from tuiapp.trainers.config.environment import hang_limit_s
from tuiapp.trainers.contract.events import Alert, Event, LogLine, PhaseName, Stacks
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.stacks import Asked, StackDump, suspect, suspect_collective
from tuiapp.trainers.state.messages import MOST_RANKS, describe_ranks, listed

SLOWEST_TIMES = 5.0
"""Slow phases get this multiple of the longest time seen so far."""
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


class RankProgress(NamedTuple):
    step: int
    """The last one started."""
    phase: PhaseName


@dataclass
class _Rank:
    progress: RankProgress
    since: float
    stopped_at: float | None = None


@dataclass
class HangWatch:
    limit_s: float = field(default_factory=hang_limit_s)
    hung_since: float | None = None
    """Start of the reported hang; None if there is none."""
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _slowest: dict[PhaseName, float] = field(default_factory=dict)
    _looked: float | None = None

    def on_progress(self, rank: int, progress: RankProgress, now: float) -> None:
        known = self._ranks.get(rank)
        if known is None:
            self._ranks[rank] = _Rank(progress, now)
        elif known.progress != progress:
            phase = known.progress.phase
            if self.hung_since is None and known.progress.step:
                # The very first step, and a hang, say nothing about usual times.
                self._slowest[phase] = max(self._slowest.get(phase, 0.0), now - known.since)
            known.progress, known.since = progress, now

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
    others = "waits" if len(waiting) == 1 else "wait"
    late_ones = describe_ranks(behind, place_of)
    rest = describe_ranks(waiting) if len(waiting) <= MOST_RANKS else f"the {len(waiting)} others"
    return f"{nothing}: {late_ones} {verb} behind, {where}; {rest} {others} at step {step:,}"


LOOK_S = 1.0


class Rank(Asked, Protocol):
    def is_stopped(self) -> bool:
        """Whether a signal, or a debugger, has stopped it."""


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
        """Without failing."""

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
        """A rank has ended without failing: the others may wait for it."""
        self._ended.append(rank)

    def advance(self, now: float, live: Mapping[int, Rank]) -> None:
        if self._dump is not None and self._dump.is_complete(now):
            self._report_hang(self._dump)
            self._dump = None
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
                self._dump = None
            text = f"the run continues after {lasted:.0f} s without progress"
            self._emit(Alert(kind="hang", severity="info", rank=self._late, text=text, ended=True))
        if silent is not None:
            # Recorded now: the report describes the moment their stacks were requested.
            self._hang = silent, self._watch.progress_by_rank(), self._watch.behind()
            self._unreachable = unreachable
            self._dump = StackDump(live, now)

    def _report_hang(self, dump: StackDump) -> None:
        silent, progress_by_rank, behind = self._hang
        stacks = dump.read()
        for one in stacks:
            self._emit(one)
        if mute := sorted(set(progress_by_rank) - {one.rank for one in stacks} - set(self._unreachable)):
            who = describe_ranks(mute, self._place_of)
            self._emit(LogLine(rank=None, stream="run", text=f"{who} gave no Python stacks"))
        if self._unreachable:
            behind = []
        suspicion = None if behind or self._unreachable else suspect(stacks, self._place_of)
        words = suspicion.words if suspicion else ""
        text = describe(silent, progress_by_rank, behind, words, self._place_of, self._unreachable)
        behind = suspicion.ranks if suspicion else behind
        if not self._unreachable and (collective := suspect_collective(stacks, self._place_of)):
            text = f"{text}; {collective.words}"
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
