"""Many batches of steps in one, as the process that reads a long journal ahead hands them over.

A digest changes a run's state as its batches would, one after the other, but costs hardly more than one of them.
"""

from __future__ import annotations

from operator import mul
from typing import NamedTuple

import msgspec
import numpy as np

from trainers.contract.efficiency import Training, training_of
from trainers.contract.events import Steps
from tuiapp.state.curves import ENTRY_ROWS, MAX_COUNT, WINDOW_ROWS, Columns, columns_of

MAX_NUMBER = 2**53
"""Of a step, or of examples: what a float still counts exactly."""

MAX_RANKS = 4096
"""Of a run; what tells of more is damage."""

MAX_BATCHES = 96
"""Over which a rank's speed is averaged at most."""

TRAINING_S = 1.0
"""Training within so long counts as one: it is averaged over half a minute."""


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
    """Successive batches of one rank.

    Raises:
        ValueError: its parts do not go together, while it is made.
    """

    rank: int
    time: float
    """Of the last batch, in seconds since the epoch."""
    loss: float | None
    """The last entry's."""
    learning_rate: float
    batches: list[Batch]
    """The last of them."""
    steps: bytes
    """int64 [entries]."""
    table: bytes
    """float64 [rows, entries], the rows of `Columns.table`."""
    norm_steps: bytes
    """int64 [entries that tell a gradient norm]."""
    norms: bytes
    """float64, as many."""

    def __post_init__(self) -> None:
        whole = self.steps and len(self.table) in (rows * len(self.steps) for rows in (ENTRY_ROWS, WINDOW_ROWS))
        if not whole or len(self.steps) % 8 or len(self.norms) % 8 or len(self.norm_steps) != len(self.norms):
            raise ValueError("columns of different lengths")
        if not self.batches or not 0 <= self.last_step <= MAX_NUMBER:
            raise ValueError("no steps, or more than there can be")

    @property
    def last_step(self) -> int:
        """The last step that it covers."""
        return self.batches[-1].last_step

    @property
    def columns(self) -> Columns:
        """Its entries; nothing is copied."""
        steps = np.frombuffer(self.steps, np.int64)
        table = np.frombuffer(self.table, np.float64).reshape(-1, len(steps))
        return Columns(steps, table, np.frombuffer(self.norm_steps, np.int64), np.frombuffer(self.norms, np.float64))


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


class Digester:
    """Puts batches of steps together."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._events: dict[int, list[Steps]] = {}
        self._batches: dict[int, list[Batch]] = {}
        self._marks: list[tuple[float, int]] = []
        self._training: list[Training] = []
        self._since = 0.0
        self._times: list[float] = []

    def add(self, event: Steps) -> bool:
        """Put a batch to the others; whether it can be: what is odd goes its own way."""
        if not _is_whole(event):
            return False
        batches = self._batches.setdefault(event.rank, [])
        if batches and event.first_step <= batches[-1].last_step:
            return False
        last_step = event.last_step
        batches.append(batch_of(event, last_step - event.first_step + 1, last_step))
        self._events.setdefault(event.rank, []).append(event)
        self._times.append(event.time)
        if not self._marks or last_step > self._marks[-1][1]:
            self._marks.append((event.time, last_step))
        training = training_of(event)
        if self._training and 0 <= event.mono - self._since < TRAINING_S:
            self._training[-1] = self._training[-1].plus(training)
        else:
            self._training.append(training)
            self._since = event.mono
        return True

    def finish(self) -> Digest | None:
        """All that was put together since the last time; None if nothing was."""
        if not self._times:
            self._forget()
            return None
        ranks = [_digest(rank, events, self._batches[rank]) for rank, events in self._events.items()]
        digest = Digest(self._times[0], max(self._times), self._marks, self._training, ranks)
        self._forget()
        return digest


def _digest(rank: int, events: list[Steps], batches: list[Batch]) -> RankDigest:
    last, columns = events[-1], columns_of(events)
    return RankDigest(
        rank=rank,
        time=last.time,
        loss=last.losses[-1],
        learning_rate=last.learning_rates[-1],
        batches=batches[-MAX_BATCHES:],
        steps=columns.steps.tobytes(),
        table=columns.table.tobytes(),
        norm_steps=columns.norm_steps.tobytes(),
        norms=columns.norms.tobytes(),
    )


def _is_whole(event: Steps) -> bool:
    """Whether its lists go together and its numbers are numbers of something."""
    size, counts = len(event.losses), event.counts
    optional = (counts, event.losses_min, event.losses_max, event.gradient_norms)
    return (
        size > 0
        and len(event.seconds) == len(event.examples) == len(event.learning_rates) == size
        and all(each is None or len(each) == size for each in optional)
        and (counts is None or (min(counts) >= 1 and max(counts) <= MAX_COUNT))
        and 0 <= min(event.examples) <= max(event.examples) < MAX_NUMBER
        and 0 <= event.rank < MAX_RANKS
        and 0 <= event.first_step <= event.last_step <= MAX_NUMBER
    )
