"""One rank's values on their way to the journal: joined into batches, and thinned if they come too fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, isfinite, isinf

from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EPOCH,
    EXAMPLES,
    LEARNING_RATE,
    MAX_COUNT,
    STEP_TIME,
    bound,
    join,
    not_nan,
)

ENTRIES_PER_SECOND = 50
"""Journal entries per rank of a built-in trainer, and at least of a script; beyond that neighbours share an entry."""
ROWS_PER_SECOND = 1000
"""Rows a second of a script, over all its ranks: a row is what a rank logs of a step."""
BURST_ROWS, LEAST_BURST_ROWS = 50_000, 2_500
"""Rows of a script that may come at once: over all its ranks, and of each of many."""
MOST_VALUES = 20_000
"""Most values in one event."""


class Budget:
    """Limits entries to `per_second` on average; saves up `saved`, which are there at the beginning."""

    def __init__(
        self, now: float, per_second: float = ENTRIES_PER_SECOND, saved: float = 2 * ENTRIES_PER_SECOND
    ) -> None:
        self._per_second, self._saved, self._left = per_second, saved, saved
        self._at = now

    @classmethod
    def of_script(cls, now: float, world_size: int) -> Budget:
        """Returns the budget of each rank of a script."""
        ranks = max(1, world_size)
        return cls(now, max(ENTRIES_PER_SECOND, ROWS_PER_SECOND / ranks), max(LEAST_BURST_ROWS, BURST_ROWS / ranks))

    def window(self, rows: int, now: float) -> int:
        """Returns how many rows must share an entry, and consumes the entries."""
        self._left = min(self._saved, self._left + self._per_second * (now - self._at))
        self._at = now
        size = max(1, ceil(rows / max(1.0, self._left)))
        self._left = max(0.0, self._left - ceil(rows / size))
        return size


def pack_steps(
    rank: int, steps: Sequence[int], columns: Mapping[str, Sequence[float]], window: int = 1, steps_per_epoch: int = 0
) -> Metrics:
    """Packs what a built-in trainer reports, metric → float [steps], into one event with `window` steps per entry.

    `steps` ascend; those that are skipped count to the next one that has values. No entry goes beyond an epoch's end.
    """
    ends = (
        [n for n, step in enumerate(steps, 1) if not step % steps_per_epoch] if window > 1 and steps_per_epoch else []
    )
    return _pack(rank, steps, columns, _starts(len(steps), window, ends), _BUILT_IN)


def pack_rows(
    rank: int, steps: Sequence[int], columns: Mapping[str, Sequence[float]], window: int = 1
) -> Iterator[Metrics]:
    """Packs what a script has logged of some metrics, metric → float [rows], in the order in which it did.

    With a `window` so many rows share an entry, in the order of their steps: those of one step always, others of two
    epochs never.
    """
    if window > 1:
        order = sorted(range(len(steps)), key=steps.__getitem__)
        steps = [steps[index] for index in order]
        columns = {name: [column[index] for index in order] for name, column in columns.items()}
    most, begin = max(1, MOST_VALUES // len(columns)), 0
    for index in range(1, len(steps) + 1):
        if index < len(steps):
            goes_on = steps[index] > steps[index - 1] or (window > 1 and steps[index] == steps[index - 1])
            if goes_on and steps[index] - steps[begin] < MAX_COUNT and index - begin < most:
                continue
        part = slice(begin, index)
        yield _pack_ascending(rank, steps[part], {name: column[part] for name, column in columns.items()}, window)
        begin = index


def _pack_ascending(rank: int, steps: Sequence[int], columns: Mapping[str, Sequence[float]], window: int) -> Metrics:
    if window == 1:
        return _pack(rank, steps, columns, range(len(steps)), {}, of_script=True)
    epochs = [ceil(epoch) if isfinite(epoch) else 0 for epoch in columns.get(EPOCH, ())]
    starts = _starts(len(steps), window, [n for n, (epoch, after) in enumerate(pairwise(epochs), 1) if epoch != after])
    starts = [start for start in starts if not start or steps[start] > steps[start - 1]]
    # A rate is worked out from these two, whoever reports them.
    summed = {EXAMPLES: sum} if STEP_TIME in columns else {}
    return _pack(rank, steps, columns, starts, summed, of_script=True)


def _starts(size: int, window: int, ends: Sequence[int]) -> list[int]:
    """Returns the first row of each entry; `ends` are rows with which one begins in any case."""
    return [start for begin, end in pairwise([0, *ends, size]) for start in range(begin, end, window)]


_Join = Callable[[Sequence[float]], float]


def _pack(
    rank: int,
    steps: Sequence[int],
    columns: Mapping[str, Sequence[float]],
    starts: Sequence[int],
    joined_by: Mapping[str, _Join],
    *,
    of_script: bool = False,
) -> Metrics:
    is_joined = len(starts) < len(steps)
    groups = [slice(*ends) for ends in pairwise([*starts, len(steps)])] if is_joined or joined_by else []
    values, lows, highs, lasts, infinite = {}, {}, {}, {}, {}
    for name, column in columns.items():
        entries: Sequence[float]
        if by := joined_by.get(name):
            entries = [by(column[group]) for group in groups]
        elif not is_joined:
            entries = column
        else:
            grouped = [column[group] for group in groups]
            entries = list(map(join, grouped))
            least, greatest = (list(map(partial(bound, pick), grouped, entries)) for pick in (min, max))
            if least != entries or greatest != entries:
                lows[name], highs[name] = least, greatest
                lasts[name] = [not_nan(entry[-1]) for entry in grouped]
        if all(map(isfinite, entries)):
            values[name] = list(entries)
        else:
            values[name] = list(map(not_nan, entries))
            if signs := {entry: 1 if value > 0 else -1 for entry, value in enumerate(entries) if isinf(value)}:
                infinite[name] = signs
    ends = [steps[group.stop - 1] for group in groups] if is_joined else steps
    counts = [last - before for before, last in pairwise([steps[0] - 1, *ends])]
    rows = None
    if of_script and is_joined:
        rows = [group.stop - group.start for group in groups]
    elif of_script and STEP_TIME in columns and max(counts) > 1:
        # Skipped steps, which those of a built-in trainer would not be.
        rows = [1] * len(steps)
    return Metrics(
        rank=rank,
        first_step=steps[0],
        values=values,
        counts=counts if max(counts) > 1 else None,
        lows=lows or None,
        highs=highs or None,
        lasts=lasts or None,
        rows=rows,
        infinite=infinite or None,
    )


def _mean_seconds(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 6)


_BUILT_IN: dict[str, _Join] = {
    LEARNING_RATE: lambda values: values[-1],
    EXAMPLES: sum,
    STEP_TIME: _mean_seconds,
    DATA_WAIT: _mean_seconds,
}
"""How these are joined of a built-in trainer's steps."""
