"""When a run hangs: nobody gets on, and nobody has said that it does what takes long.

Each rank tells once a second how far it is (`wire.Heartbeat`), from a thread that neither training nor a device can
hold up. Ranks wait for each other in collectives, so one that does not get there stands still with all others, a step
behind them. Pure bookkeeping: the clock is the caller's, so that a test needs no waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from trainers.config.environment import hang_limit_s
from trainers.contract.events import PhaseName
from trainers.contract.wording import describe_ranks

SLOWEST_TIMES = 5.0
"""What is slow by nature gets so many times the longest that it has taken before."""
PHASE_LIMITS_S: dict[PhaseName, float] = {
    "preparing": 900.0,
    "compiling": 1800.0,
    "evaluating": 300.0,
    "checkpointing": 600.0,
    "stopping": 600.0,
}
"""What these may take before anything is known of this run's own; data may have to be fetched, or compiled."""
SUSPENDED_S = 5.0
"""When the supervisor itself has not run for so long, the ranks may have been suspended with it."""


class Standing(NamedTuple):
    """Where a rank stands."""

    step: int
    """The last one that it has started."""
    phase: PhaseName


@dataclass
class _Rank:
    standing: Standing
    since: float
    """When it got there."""
    stopped_at: float | None = None
    """Since when its process is stopped by a signal."""


@dataclass
class HangWatch:
    """Where all ranks of a run stand, and since when."""

    limit_s: float = field(default_factory=hang_limit_s)
    told: float | None = None
    """When the hang that is told of began; None when there is none."""
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _slowest: dict[PhaseName, float] = field(default_factory=dict)
    _looked: float | None = None

    def hear(self, rank: int, standing: Standing, now: float) -> None:
        """A rank has told where it stands."""
        known = self._ranks.get(rank)
        if known is None:
            self._ranks[rank] = _Rank(standing, now)
        elif known.standing != standing:
            phase = known.standing.phase
            if self.told is None and known.standing.step:
                # The first step of all, and a hang, say nothing of what is usual.
                self._slowest[phase] = max(self._slowest.get(phase, 0.0), now - known.since)
            known.standing, known.since = standing, now

    def forget(self, rank: int) -> None:
        """A rank has ended."""
        self._ranks.pop(rank, None)

    def look(self, now: float, stopped: Iterable[int] = ()) -> float | None:
        """See whether the run hangs; call about once a second.

        Args:
            now: Seconds on the monotonic clock.
            stopped: Ranks whose processes are stopped by a signal at this moment.

        Returns:
            Seconds without progress, when that has become worth telling; None otherwise.
        """
        before, self._looked = self._looked, now
        still = set(stopped)
        suspended = before is not None and now - before > SUSPENDED_S
        if (still or suspended) and self.told is None:
            # The ranks wait for the stopped one, or did not run either: their time begins anew.
            for rank in self._ranks.values():
                rank.since = now
        for number, rank in self._ranks.items():
            rank.stopped_at = (rank.stopped_at or now) if number in still else None
        waiting = [rank for rank in self._ranks.values() if rank.standing.phase != "done"]
        if not waiting or still:
            return None
        silent = now - max(rank.since for rank in waiting)
        if self.told is not None or silent < max(self._limit(rank.standing.phase) for rank in waiting):
            return None
        self.told = now - silent
        return silent

    def over(self, now: float) -> float | None:
        """Whether the hang that was told of is over: somebody has got on.

        Returns:
            How long it was, once; None otherwise.
        """
        if self.told is None or all(rank.since <= self.told + 1e-6 for rank in self._ranks.values()):
            return None
        lasted, self.told = now - self.told, None
        return lasted

    def stopped(self, now: float) -> list[int]:
        """Ranks whose processes have been stopped for so long that a person should know."""
        after = min(10.0, self.limit_s)
        return [n for n, rank in self._ranks.items() if rank.stopped_at is not None and now - rank.stopped_at >= after]

    def standings(self) -> dict[int, Standing]:
        """Where each rank stands that still has something to do."""
        return {n: rank.standing for n, rank in sorted(self._ranks.items()) if rank.standing.phase != "done"}

    def behind(self) -> list[int]:
        """Ranks that have started fewer steps than the furthest; none when all are level."""
        steps = {number: standing.step for number, standing in self.standings().items()}
        return [number for number, step in steps.items() if step < max(steps.values())]

    def _limit(self, phase: PhaseName) -> float:
        usual = SLOWEST_TIMES * self._slowest.get(phase, 0.0)
        if phase == "training":
            return max(self.limit_s, usual)
        if phase == "evaluating" and usual:
            # The same work each time.
            return max(2 * self.limit_s, usual)
        return max(PHASE_LIMITS_S.get(phase, 0.0), usual)


def describe(silent_s: float, standings: dict[int, Standing], behind: list[int], elsewhere: str = "") -> str:
    """A hang in words.

    Args:
        silent_s: Seconds since anybody got on.
        standings: Of all ranks, in order.
        behind: Those that have not come as far as the others.
        elsewhere: What sets some apart from the others that are level with them, if that is known.
    """
    step = max((standing.step for standing in standings.values()), default=0)
    phases = {standing.phase for standing in standings.values()}
    nothing = f"no progress for {silent_s:.0f} s"
    if not behind:
        at = f"at step {step:,}" if step else "before the first step"
        doing = f" ({phases.pop()})" if len(phases) == 1 else ""
        who = "all ranks stand" if len(standings) > 1 else "the rank stands"
        return f"{nothing}: {who} {at}{doing}{'; ' + elsewhere if elsewhere else ''}"
    waiting = [rank for rank in standings if rank not in behind]
    steps = sorted({standings[rank].step for rank in behind})
    where = f"at step {steps[0]:,}" if len(steps) == 1 else f"at steps {steps[0]:,} to {steps[-1]:,}"
    verb = "is" if len(behind) == 1 else "are"
    others = "waits" if len(waiting) == 1 else "wait"
    late_ones, rest = describe_ranks(behind), describe_ranks(waiting)
    return f"{nothing}: {late_ones} {verb} behind, {where}; {rest} {others} at step {step:,}"
