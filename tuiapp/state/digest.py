"""Many batches of steps in one, as the process that reads a long journal ahead hands them over.

A digest changes a run's state as its batches would, one after the other, but costs hardly more than one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from operator import mul
from typing import NamedTuple

import msgspec

from trainers.contract.events import Steps
from tuiapp.state.efficiency import Training, training_of
from tuiapp.state.entries import Entries, gather

MAX_NUMBER = 2**53
"""Of a step, or of examples: what a float still counts exactly."""

MAX_RANKS = 4096
"""Of a run; what tells of more is damage."""

MAX_BATCHES = 96
"""Over which a rank's speed is averaged at most."""

TRAINING_S = 1.0
"""Training within so long counts as one: it is averaged over half a minute."""

MAX_COUNT = 2**31
"""Of the steps that share an entry."""

LEAST_EVENTS = 16
"""Of fewer among which one is odd no digest is made."""


class Batch(NamedTuple):
    """How long a rank took for some steps."""

    time: float
    last_step: int
    steps: int
    seconds: float
    examples: int


def batch_of(event: Steps, steps: int, last_step: int) -> Batch:
    """The batch that an event tells of, with so many steps up to the last one."""
    seconds = sum(map(mul, event.seconds, event.counts)) if event.counts else sum(event.seconds)
    return Batch(event.time, last_step, steps, seconds, sum(event.examples))


class RankDigest(msgspec.Struct, frozen=True, array_like=True):
    """Successive batches of one rank, without a gap.

    Raises:
        ValueError: its parts do not go together, while it is made.
    """

    rank: int
    first_step: int
    time: float
    """Of the last batch, in seconds since the epoch."""
    loss: float | None
    """The last entry's."""
    learning_rate: float
    batches: list[Batch]
    """The last of them."""
    entries: Entries

    def __post_init__(self) -> None:
        if not len(self.entries) or not self.batches or not 0 <= self.last_step <= MAX_NUMBER:
            raise ValueError("no steps, or more than there can be")

    @property
    def last_step(self) -> int:
        """The last step that it covers."""
        return self.batches[-1].last_step


class Digest(msgspec.Struct, frozen=True, tag="digest"):
    """Successive batches of all ranks, with nothing between them that depends on where they stand."""

    first_time: float
    """Of the first batch, in seconds since the epoch."""
    last_time: float
    """The latest of all."""
    marks: list[tuple[float, int]]
    """When a step was reached first; ascending steps."""
    training: list[Training]
    """What came together in each second."""
    ranks: list[RankDigest]


def digested(events: Sequence[Steps]) -> Iterator[Digest | Steps]:
    """The same batches, put together; what is odd goes its own way, with those near it."""
    ranks: dict[int, list[Steps]] = {}
    for event in events:
        ranks.setdefault(event.rank, []).append(event)
    if all(map(_is_whole, ranks.values())):
        if events:
            yield _digest(events, ranks)
    elif len(events) < LEAST_EVENTS:
        yield from events
    else:
        half = len(events) // 2
        yield from digested(events[:half])
        yield from digested(events[half:])


def _digest(events: Sequence[Steps], ranks: dict[int, list[Steps]]) -> Digest:
    marks, step = [], -1
    for event in events:
        if (last_step := event.last_step) > step:
            step = last_step
            marks.append((event.time, step))
    return Digest(
        first_time=events[0].time,
        last_time=max(event.time for event in events),
        marks=marks,
        training=_training(events),
        ranks=[_rank_digest(rank, of_rank) for rank, of_rank in ranks.items()],
    )


def _rank_digest(rank: int, events: list[Steps]) -> RankDigest:
    last = events[-1]
    return RankDigest(
        rank=rank,
        first_step=events[0].first_step,
        time=last.time,
        loss=last.losses[-1],
        learning_rate=last.learning_rates[-1],
        batches=[
            batch_of(event, event.last_step - event.first_step + 1, event.last_step) for event in events[-MAX_BATCHES:]
        ],
        entries=gather(events),
    )


def _training(events: Sequence[Steps]) -> list[Training]:
    """What batches came to, those of a second together."""
    groups: list[list[Training]] = []
    since = 0.0
    for training in map(training_of, events):
        if groups and 0 <= training.mono - since < TRAINING_S:
            groups[-1].append(training)
        else:
            groups.append([training])
            since = training.mono
    return [Training(group[-1].mono, *map(sum, islice(zip(*group, strict=True), 1, None))) for group in groups]


def _is_whole(events: Sequence[Steps]) -> bool:
    """Whether a rank's batches go together and their numbers are numbers of something."""
    sizes = [len(event.losses) for event in events]
    last_steps = [event.last_step for event in events]
    return (
        0 <= events[0].rank < MAX_RANKS
        and min(sizes) > 0
        and _have_lists(events, sizes)
        and _within((event.counts for event in events), 1, MAX_COUNT)
        and _within((event.examples for event in events), 0, MAX_NUMBER - 1)
        and min(event.first_step for event in events) >= 0
        and max(last_steps) <= MAX_NUMBER
        and all(event.first_step == before + 1 for event, before in zip(events[1:], last_steps, strict=False))
    )


def _have_lists(events: Sequence[Steps], sizes: list[int]) -> bool:
    """Whether events have as many of each as they have losses."""
    needed: Iterable[list[Sized]] = (
        [event.seconds for event in events],
        [event.examples for event in events],
        [event.learning_rates for event in events],
    )
    optional: Iterable[list[Sized | None]] = (
        [event.counts for event in events],
        [event.losses_min for event in events],
        [event.losses_max for event in events],
        [event.gradient_norms for event in events],
    )
    return all(list(map(len, field)) == sizes for field in needed) and all(
        each is None or len(each) == size for field in optional for each, size in zip(field, sizes, strict=True)
    )


def _within(fields: Iterable[list[int] | None], least: int, most: int) -> bool:
    """Whether all numbers of lists are within bounds."""
    seen: list[int] | None = None
    for field in fields:
        # Most are the same as the one before.
        if field is not None and field != seen:
            if not least <= min(field) <= max(field) <= most:
                return False
            seen = field
    return True
