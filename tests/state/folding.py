"""Folds histories for tests."""

from __future__ import annotations

from collections.abc import Sequence

from tuiapp.state.fold import apply
from tuiapp.state.run_state import RunState


def fold(events: Sequence[object]) -> RunState:
    """The state after all of the events."""
    state = RunState("before-the-first-event")
    for event in events:
        apply(state, event)
    return state
