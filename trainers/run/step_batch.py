"""One rank's values on their way to the journal: joined into batches, and thinned if they come too fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import ceil, isfinite

from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import DATA_WAIT, EXAMPLES, GRADIENT_NORM, LEARNING_RATE, STEP_TIME

ENTRIES_PER_SECOND = 50
"""Journal entries per rank; beyond that neighbouring steps share an entry."""


class Budget:
    """Limits entries to `ENTRIES_PER_SECOND` on average, with up to two seconds' worth saved up."""

    def __init__(self, now: float) -> None:
        self._left = float(ENTRIES_PER_SECOND)
        self._at = now

    def window(self, steps: int, now: float) -> int:
        """Returns how many steps must share an entry, and consumes the entries."""
        self._left = min(2.0 * ENTRIES_PER_SECOND, self._left + ENTRIES_PER_SECOND * (now - self._at))
        self._at = now
        size = max(1, ceil(steps / max(1.0, self._left)))
        self._left = max(0.0, self._left - ceil(steps / size))
        return size


def pack(rank: int, steps: Sequence[int], columns: Mapping[str, Sequence[float]], window: int = 1) -> Metrics:
    """Packs `columns`, metric → float [steps], into one event with `window` values per entry; `steps` ascend.

    Steps that are skipped count to the next one that has values.
    """
    starts = range(0, len(steps), window)
    values, lows, highs = {}, {}, {}
    for name, column in columns.items():
        groups = [column[start : start + window] for start in starts]
        values[name] = [_finite(_JOINED.get(name, _mean)(group)) for group in groups]
        if window > 1 and name not in _JOINED:
            lows[name] = [_extreme(group, min) for group in groups]
            highs[name] = [_extreme(group, max) for group in groups]
    lasts = [steps[min(start + window, len(steps)) - 1] for start in starts]
    counts = [last - before for before, last in pairwise([steps[0] - 1, *lasts])]
    return Metrics(
        rank=rank,
        first_step=steps[0],
        values=values,
        counts=counts if max(counts) > 1 else None,
        lows=lows or None,
        highs=highs or None,
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _mean(group: Sequence[float]) -> float:
    # A window with one non-finite value has no mean: it must not hide what happened.
    return sum(group) / len(group)


def _mean_seconds(group: Sequence[float]) -> float:
    return round(sum(group) / len(group), 6)


def _last(group: Sequence[float]) -> float:
    return group[-1]


_JOINED: dict[str, Callable[[Sequence[float]], float]] = {
    LEARNING_RATE: _last,
    GRADIENT_NORM: _mean,
    EXAMPLES: sum,
    STEP_TIME: _mean_seconds,
    DATA_WAIT: _mean_seconds,
}
"""How the values of an entry's steps are joined; for every other metric by the mean, with the extremes beside it."""


def _extreme(group: Sequence[float], pick: Callable[[list[float]], float]) -> float | None:
    finite = [value for value in group if isfinite(value)]
    return pick(finite) if finite else None
