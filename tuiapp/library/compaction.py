"""Makes an ended run's journal smaller: neighbouring entries are joined where curves keep no single step.

They become means, with the least, greatest and last value, as in `tuiapp.trainers.run.step_batch`. Not joined are
values of two epochs, finite ones with others, evaluations of built-in trainers, and what comes first of each in an
attempt. All other lines stay byte for byte, but that the end counts a script's joined rows as a blemish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil, isfinite, isinf, nan
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import open_regular
from tuiapp.trainers.contract.events import Blemish, Metrics, Purged, Queued, RunEnded, RunStarted, decode, encode
from tuiapp.trainers.contract.journal import MAX_LINE_BYTES, line_start
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
from tuiapp.trainers.state.blemishes import BlemishMeter

ENTRIES = 2048
"""Entries that a metric of a rank is left with; fewer than twice as many stay as they are."""

Key = tuple[int, tuple[str, ...]]
"""A rank, and names of metrics that it reports together."""

_METRICS, _END = line_start(Metrics), line_start(RunEnded)
_DECODED = (_METRICS, _END, *(line_start(kind) for kind in (RunStarted, Queued, Purged)))


def compacted(journal: Path) -> Iterator[bytes]:
    """Yields the lines that take the place of a journal's. Raises OSError."""
    windows, end = _survey(journal)
    joiner = _Joiner(windows)
    for number, line in enumerate(_lines(journal)):
        event = decode(line) if line.startswith(_DECODED) else None
        if isinstance(event, Metrics):
            yield from joiner.add(event, line)
            continue
        if event is not None:
            yield from joiner.flush()
        if isinstance(event, RunStarted):
            joiner.begin(event)
        if isinstance(event, RunEnded) and number == end and (joined := joiner.blemishes()):
            remaining = [blemish for blemish in event.summary.blemishes if blemish.kind != joined[0].kind]
            line = encode(replace(event, summary=replace(event.summary, blemishes=remaining + joined)))
        yield line
    yield from joiner.flush()


class _Batch(msgspec.Struct):
    rank: int
    values: dict[str, msgspec.Raw]


_batch = msgspec.json.Decoder(_Batch)


def _survey(journal: Path) -> tuple[dict[Key, int], int]:
    """Returns how many entries are joined into one, where more than one are, and the number of the last end's line."""
    entries, sizes, end = Counter[Key](), Counter[tuple[int, str]](), -1
    for number, line in enumerate(_lines(journal)):
        if line.startswith(_END):
            end = number
        elif line.startswith(_METRICS):
            try:
                batch = _batch.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            size = bytes(next(iter(batch.values.values()), b"")).count(b",") + 1
            entries[batch.rank, tuple(batch.values)] += size
    for (rank, names), size in entries.items():
        sizes.update({(rank, name): size for name in names})
    windows = {key: max(ceil(sizes[key[0], name] / ENTRIES) for name in key[1]) for key in entries if key[1]}
    return {key: window for key, window in windows.items() if window > 2}, end


def _lines(journal: Path) -> Iterator[bytes]:
    """Yields a journal's lines, without a torn tail; of damage that is longer than a line, parts."""
    with open(journal, "rb", opener=open_regular) as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if line.endswith(b"\n") or len(line) > MAX_LINE_BYTES:
                yield line


class _Joiner:
    """Joins entries of consecutive events, as many as `windows` says for what they are of."""

    def __init__(self, windows: dict[Key, int]) -> None:
        self._windows = windows
        self._pending: dict[Key, list[tuple[Metrics, bytes]]] = {}
        self._begun = set[Key]()
        self._epochs: dict[int, int] = {}
        """Rank → the epoch that it reported last."""
        self._is_script, self._steps_per_epoch = False, 0
        self._meter = BlemishMeter()

    def begin(self, event: RunStarted) -> None:
        """Begins an attempt."""
        backend = BACKENDS.get(str(event.config.get("backend")))
        self._is_script = backend is not None and not backend.builtin
        self._steps_per_epoch = max(0, event.steps_per_epoch)
        self._begun.clear()

    def blemishes(self) -> list[Blemish]:
        return [blemish for blemish in self._meter.blemishes(0, 0.0) if blemish.kind == "joined"]

    def add(self, event: Metrics, line: bytes) -> Iterator[bytes]:
        """Takes in an event and its line; yields the lines of what is not joined with later ones."""
        key = event.rank, tuple(event.values)
        ends_epoch = EPOCH in event.values and self._ends_epoch(event)
        for other in [other for other in self._pending if other[0] == event.rank]:
            # Of a step that is reported twice the last value counts.
            if ends_epoch or (other != key and not event.values.keys().isdisjoint(other[1])):
                yield from self._flush(other)
        held_out = not self._is_script and not event.is_training
        if held_out or key not in self._windows:
            self._meter.add(event)
            yield line
            return
        if key not in self._begun:
            # By what comes first an attempt shows where it goes on.
            yield from self._flush(key)
            self._pending[key] = [(event, line)]
            yield from self._flush(key)
            self._begun.add(key)
            return
        if (waiting := self._pending.get(key)) and not _follows(waiting[0][0], waiting[-1][0], event):
            yield from self._flush(key)
        waiting = self._pending.setdefault(key, [])
        waiting.append((event, line))
        if sum(len(metrics) for metrics, _ in waiting) >= self._windows[key]:
            yield from self._flush(key)

    def flush(self) -> Iterator[bytes]:
        """Yields the lines for all entries that are pending."""
        for key in [*self._pending]:
            yield from self._flush(key)

    def _ends_epoch(self, event: Metrics) -> bool:
        first, last = (_epoch(event.values[EPOCH][index]) for index in (0, -1))
        before = self._epochs.get(event.rank, first)
        self._epochs[event.rank] = last
        return first != before

    def _flush(self, key: Key) -> Iterator[bytes]:
        """Yields the line that takes the place of a key's pending entries, if there are any."""
        waiting = self._pending.pop(key, [])
        if len(waiting) == 1 and len(waiting[0][0]) == 1:
            yield waiting[0][1]
        elif waiting:
            joined = self._joined([event for event, _ in waiting], key)
            self._meter.add(joined)
            yield encode(joined)

    def _joined(self, events: Sequence[Metrics], key: Key) -> Metrics:
        ends, rows = list[int](), list[int]()
        for event in events:
            counts = event.counts or [1] * len(event)
            ends += [*accumulate(counts, initial=event.first_step - 1)][1:]
            rows += event.joined()
        columns = {name: _column(events, name) for name in events[0].values}
        groups = self._groups(columns, ends, self._windows[key], begins=key not in self._begun)
        weights = rows if EXAMPLES not in columns or self._is_script else columns[EXAMPLES]
        steps = [last - first for first, last in pairwise([events[0].first_step - 1, *ends])]
        values: dict[str, list[float | None]] = {}
        infinite: dict[str, dict[int, int]] = {}
        bounds: tuple[dict[str, list[float | None]], ...] = {}, {}, {}
        for name, column in columns.items():
            built_in = not self._is_script and STEP_TIME in columns
            if name == EXAMPLES and STEP_TIME in columns:
                joined = [sum(column[group]) for group in groups]
            elif name == EPOCH or (built_in and name == LEARNING_RATE):
                joined = [column[group.stop - 1] for group in groups]
            elif built_in and name in (STEP_TIME, DATA_WAIT):
                joined = [round(join(column[group], steps[group]), 6) for group in groups]
            else:
                joined = [join(column[group], weights[group]) for group in groups]
                lows, highs, lasts = (_column(events, name, side) for side in ("lows", "highs", "lasts"))
                least = [bound(min, lows[group], value) for group, value in zip(groups, joined, strict=True)]
                greatest = [bound(max, highs[group], value) for group, value in zip(groups, joined, strict=True)]
                if least != (shown := [*map(not_nan, joined)]) or greatest != shown:
                    last = [not_nan(lasts[group.stop - 1]) for group in groups]
                    for side, bound_values in zip(bounds, (least, greatest, last), strict=True):
                        side[name] = bound_values
            values[name] = [*map(not_nan, joined)]
            if signs := {entry: 1 if value > 0 else -1 for entry, value in enumerate(joined) if isinf(value)}:
                infinite[name] = signs
        counts = [sum(steps[group]) for group in groups]
        return replace(
            events[-1],
            first_step=events[0].first_step,
            values=values,
            counts=counts if max(counts) > 1 else None,
            lows=bounds[0] or None,
            highs=bounds[1] or None,
            lasts=bounds[2] or None,
            rows=[sum(rows[group]) for group in groups] if self._is_script else None,
            infinite=infinite or None,
        )

    def _groups(
        self, columns: dict[str, list[float]], ends: Sequence[int], window: int, *, begins: bool
    ) -> list[slice]:
        """Returns the entries that are joined: the first of an epoch, or an attempt, stands by itself."""
        epochs = [(end - 1) // self._steps_per_epoch for end in ends] if self._steps_per_epoch else [0] * len(ends)
        if EPOCH in columns:
            epochs = [*map(_epoch, columns[EPOCH])]
        finite = [tuple(map(isfinite, entry)) for entry in zip(*columns.values(), strict=True)]
        starts = [0]
        for index in range(1, len(ends)):
            alone = begins if index == 1 else epochs[index - 1] != epochs[index - 2]
            if (
                alone
                or epochs[index] != epochs[index - 1]
                or finite[index] != finite[index - 1]
                or index - starts[-1] >= window
            ):
                starts.append(index)
        return [slice(*both) for both in pairwise([*starts, len(ends)])]


def _follows(first: Metrics, before: Metrics, event: Metrics) -> bool:
    """Whether an event goes on where another one of the same metrics ended, with room for all since the first."""
    missing = event.first_step - before.last_step - 1
    # Of who reports the time of steps none may be missing.
    return (not missing or (missing > 0 and STEP_TIME not in event.values)) and (
        event.last_step - first.first_step < MAX_COUNT
    )


def _column(events: Sequence[Metrics], name: str, side: str = "values") -> list[float]:
    """Returns a metric's values in events, or the least, greatest or last ones that their entries join."""
    column = list[float | None]()
    for event in events:
        values = event.values[name]
        bounds = (getattr(event, side) or {}).get(name, values)
        # JSON has no infinite ones: they are those of `values`.
        column += [
            value if limit is None and value is not None and isinf(value) else limit
            for limit, value in zip(bounds, values, strict=True)
        ]
    return [nan if value is None else value for value in column]


def _epoch(value: float | None) -> int:
    return ceil(value) if value is not None and isfinite(value) else 0
