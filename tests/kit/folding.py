"""Folds histories for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.series import Series

Values = Sequence[float | None]


def fold(events: Sequence[object]) -> RunState:
    """The state after all of the events."""
    state = RunState("before-the-first-event")
    for event in events:
        apply(state, event)
    return state


def extend(
    series: Series, first: int, values: Values, window: int = 1, lows: Values | None = None, highs: Values | None = None
) -> None:
    """Add values of successive windows of as many steps."""
    steps = first - 1 + window * np.arange(1, len(values) + 1)
    bounds = (None if each is None else np.array(each, np.float64) for each in (lows, highs))
    series.add(steps, np.array(values, np.float64), *bounds)
