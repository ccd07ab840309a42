"""Batches of one rank's steps laid end to end, field by field, as bytes.

It is what goes from the process that reads a long journal to the dashboard, and what the curves are made of in both.
Nothing here needs numpy: to import it would take a third of that process's time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from trainers.contract.events import Steps

LIMIT = 1e30
"""Values beyond it count as not finite: no axis can show them beside others."""

NAN = float("nan")

Field = Sequence[float | None]
"""A value for each entry of an event."""


class Entries(msgspec.Struct, frozen=True, array_like=True):
    """What successive batches of one rank told.

    Raises:
        ValueError: its parts do not go together, while it is made.
    """

    firsts: bytes
    """int64 [events]: the step that each begins with."""
    sizes: bytes
    """int64 [events]: how many entries each has."""
    losses: bytes
    """float64 [entries], as the following; not a number where a value is missing."""
    seconds: bytes
    examples: bytes
    """One value alone where all entries have the same, as in the following."""
    learning_rates: bytes
    counts: bytes
    """Steps that share an entry."""
    lows: bytes
    """The least loss of each entry's steps; empty where each step has an entry of its own, as the greatest."""
    highs: bytes
    told: bytes
    """int64 [events]: 1 where an event tells gradient norms; empty where none does."""
    norms: bytes
    """float64 [entries of those events]."""

    def __post_init__(self) -> None:
        sizes, told = _integers(self.sizes), _integers(self.told)
        length = 8 * sum(sizes)
        shortened = (self.examples, self.learning_rates, self.counts)
        windows = {len(self.lows), len(self.highs)}
        norms = 8 * sum(size for size, tells in zip(sizes, told, strict=False) if tells)
        if (
            len(self.losses) != length
            or len(self.seconds) != length
            or any(len(column) not in (min(8, length), length) for column in shortened)
            or windows not in ({0}, {length})
            or min(sizes, default=0) < 0
            or len(self.firsts) != len(self.sizes)
            or len(told) not in (0, len(sizes))
            or len(self.norms) != norms
        ):
            raise ValueError("columns of different lengths")

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self.losses) // 8


def gather(events: Sequence[Steps]) -> Entries:
    """What events of one rank tell, in order. What a field lacks, or has beyond an event's losses, is not a number."""
    sizes = [len(each.losses) for each in events]
    losses = [each.losses for each in events]
    ones = {size: [1] * size for size in set(sizes)}
    counts = [each.counts or ones[size] for each, size in zip(events, sizes, strict=True)]
    windows = any(each.counts for each in events)
    lows = [each.losses_min or each.losses for each in events] if windows else []
    highs = [each.losses_max or each.losses for each in events] if windows else []
    tells = [bool(each.gradient_norms) for each in events]
    norms = [each.gradient_norms or [] for each in events if each.gradient_norms]
    return Entries(
        firsts=array("q", [each.first_step for each in events]).tobytes(),
        sizes=array("q", sizes).tobytes(),
        losses=_column(losses, sizes),
        seconds=_column([each.seconds for each in events], sizes),
        examples=_column([each.examples for each in events], sizes, shorten=True),
        learning_rates=_column([each.learning_rates for each in events], sizes, shorten=True),
        counts=_column(counts, sizes, shorten=True),
        lows=_column(lows, sizes) if windows else b"",
        highs=_column(highs, sizes) if windows else b"",
        told=array("q", tells).tobytes() if norms else b"",
        norms=_column(norms, [size for size, tell in zip(sizes, tells, strict=True) if tell]) if norms else b"",
    )


def joined(parts: Sequence[Entries]) -> Entries:
    """Entries one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: [getattr(part, name) for part in parts] for name in Entries.__struct_fields__}
    for name in ("examples", "learning_rates", "counts"):
        first = columns[name][0]
        if len(first) > 8 or columns[name].count(first) < len(parts):
            columns[name] = [_whole(part, name) for part in parts]
        else:
            columns[name] = [first]
    if any(columns["lows"]):
        # Where steps have entries of their own, the least and the greatest loss are the loss.
        columns["lows"] = [part.lows or part.losses for part in parts]
        columns["highs"] = [part.highs or part.losses for part in parts]
    if any(columns["told"]):
        columns["told"] = [part.told or bytes(len(part.sizes)) for part in parts]
    return Entries(**{name: b"".join(column) for name, column in columns.items()})


def _whole(part: Entries, name: str) -> bytes:
    """A column that may be shortened, with a value for each entry."""
    column: bytes = getattr(part, name)
    return column if len(column) == len(part.losses) else column * len(part)


def _integers(data: bytes) -> array[int]:
    """Raises: ValueError: there is a part of one."""
    values = array("q")
    values.frombytes(data)
    return values


def _column(fields: Sequence[Field], sizes: list[int], *, shorten: bool = False) -> bytes:
    """One field of all events as one array, as many values of each as it has losses; or one, if all are that."""
    if not fields:
        return b""
    if list(map(len, fields)) != sizes:
        fields = [[*field[:size], *[None] * (size - len(field))] for field, size in zip(fields, sizes, strict=True)]
    if fields[0] == fields[-1] and fields.count(fields[0]) == len(fields):
        # What stays the same from event to event, as counts and examples do, is turned into floats once.
        if shorten and len(set(fields[0])) == 1:
            return _floats([fields[0][:1]])
        return _floats(fields[:1]) * len(fields)
    return _floats(fields)


def _floats(fields: Sequence[Field]) -> bytes:
    values = array("d")
    try:
        for field in fields:
            values.fromlist(field)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        # A loss that is not finite, or a whole number beyond all floats.
        values = array("d", [_bounded(value) for field in fields for value in field])
    return values.tobytes()


def _bounded(value: float | None) -> float:
    return NAN if value is None or abs(value) > LIMIT else value
