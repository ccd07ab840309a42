"""What ranks reported, picked out of a run's events, and the events that they report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.metrics import (
    EXAMPLES,
    LEARNING_RATE,
    LOSS,
    STEP_TIME,
    TEST_ACCURACY,
    TEST_EXAMPLES,
    TEST_LOSS,
    TEST_SECONDS,
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation's values."""

    step: int
    loss: float | None
    accuracy: float
    examples: float
    seconds: float
    time: float = 0.0


def of_steps(events: Iterable[object], rank: int | None = None) -> list[Metrics]:
    """The batches of steps, of one rank or of all."""
    found = (event for event in events if isinstance(event, Metrics) and STEP_TIME in event.values)
    return [event for event in found if rank is None or event.rank == rank]


def values(events: Iterable[object], name: str, rank: int | None = None) -> list[float | None]:
    """A metric's values, entry by entry, of one rank or of all."""
    found = (event for event in events if isinstance(event, Metrics) and rank in (None, event.rank))
    return [value for event in found for value in event.values.get(name, ())]


def losses(events: Iterable[object], rank: int) -> list[float]:
    """A rank's losses; 0 where they are not finite."""
    return [loss or 0.0 for loss in values(events, LOSS, rank)]


def evaluations(events: Iterable[object]) -> list[Evaluation]:
    """All of them, in order."""
    found = [event for event in events if isinstance(event, Metrics) and TEST_ACCURACY in event.values]
    figures = (
        [event.values[name][0] or 0.0 for name in (TEST_ACCURACY, TEST_EXAMPLES, TEST_SECONDS)] for event in found
    )
    return [
        Evaluation(event.last_step, event.values[TEST_LOSS][0], accuracy, examples, seconds, event.time)
        for event, (accuracy, examples, seconds) in zip(found, figures, strict=True)
    ]


def step_event(
    rank: int,
    first_step: int,
    losses: Sequence[float | None],
    *,
    seconds: float | Sequence[float | None] = 0.05,
    examples: float | Sequence[float | None] = 24,
    rates: float | Sequence[float | None] = 0.001,
    **more: Any,
) -> Metrics:
    """A batch of steps as the reporter sends it; one number stands for each of the entries."""
    size = len(losses)

    def each(values: float | Sequence[float | None]) -> list[float | None]:
        return [values] * size if isinstance(values, int | float) else list(values)

    columns = {LOSS: list(losses), LEARNING_RATE: each(rates), EXAMPLES: each(examples), STEP_TIME: each(seconds)}
    return Metrics(rank=rank, first_step=first_step, values=columns, **more)


def evaluation_event(
    step: int,
    loss: float | None,
    accuracy: float | None,
    *,
    rank: int = 0,
    examples: int = 360,
    seconds: float = 0.2,
    **more: Any,
) -> Metrics:
    """An evaluation as the reporter sends it."""
    columns: dict[str, list[float | None]] = {
        TEST_LOSS: [loss],
        TEST_ACCURACY: [accuracy],
        TEST_EXAMPLES: [examples],
        TEST_SECONDS: [seconds],
    }
    return Metrics(rank=rank, first_step=step, values=columns, **more)


def with_values(event: Metrics, **columns: list[Any] | None) -> Metrics:
    """The same batch with other columns, or without those that are None; a name's slash is written as two lines."""
    named = {name.replace("__", "/"): column for name, column in columns.items()}
    values = {name: column for name, column in {**event.values, **named}.items() if column is not None}
    return msgspec.structs.replace(event, values=values)
