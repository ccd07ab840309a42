"""One rank's steps on their way into the journal: joined into batches, and thinned where they come too fast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, isfinite

from trainers.contract.events import Steps

ENTRIES_PER_SECOND = 50
"""What the journal keeps of one rank; beyond it neighbouring steps share an entry."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank."""

    step: int
    loss: float
    seconds: float
    examples: int
    learning_rate: float
    gradient_norm: float | None = None
    """None where it is not told."""


class Budget:
    """How many entries may go out: `ENTRIES_PER_SECOND` on average, up to two seconds' worth saved up."""

    def __init__(self, now: float) -> None:
        self._left = float(ENTRIES_PER_SECOND)
        self._at = now

    def window(self, steps: int, now: float) -> int:
        """How many steps must share an entry, and take the entries."""
        self._left = min(2.0 * ENTRIES_PER_SECOND, self._left + ENTRIES_PER_SECOND * (now - self._at))
        self._at = now
        size = max(1, ceil(steps / max(1.0, self._left)))
        self._left = max(0.0, self._left - ceil(steps / size))
        return size


def pack(rank: int, steps: list[Step], window: int, data_wait_s: float | None = None) -> Steps:
    """Steps in a row as one event.

    Args:
        rank: Whose they are.
        steps: At least one; numbers without gaps.
        window: Steps per entry.
        data_wait_s: How long all of them waited for their batches; None where that is told elsewhere.
    """
    groups = [steps[start : start + window] for start in range(0, len(steps), window)]
    event = Steps(
        rank=rank,
        first_step=steps[0].step,
        losses=[_mean([one.loss for one in group]) for group in groups],
        seconds=[sum(one.seconds for one in group) / len(group) for group in groups],
        examples=[sum(one.examples for one in group) for group in groups],
        learning_rates=[group[-1].learning_rate for group in groups],
        counts=[len(group) for group in groups] if window > 1 else None,
        losses_min=[_extreme(group, min) for group in groups] if window > 1 else None,
        losses_max=[_extreme(group, max) for group in groups] if window > 1 else None,
        gradient_norms=_norms(groups),
        data_wait_s=None if data_wait_s is None else round(data_wait_s, 6),
    )
    return event


def _norms(groups: list[list[Step]]) -> list[float | None] | None:
    told = [[one.gradient_norm for one in group if one.gradient_norm is not None] for group in groups]
    return [_mean(group) for group in told] if all(told) else None


def _mean(losses: list[float]) -> float | None:
    # A window with one loss that is not finite has no mean: it must not hide what happened.
    mean = sum(losses) / len(losses)
    return mean if isfinite(mean) else None


def _extreme(group: list[Step], pick: Callable[[list[float]], float]) -> float | None:
    finite = [one.loss for one in group if isfinite(one.loss)]
    return pick(finite) if finite else None
