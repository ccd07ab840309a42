"""The supervisor's clock, as its events show it."""

from __future__ import annotations

import pytest

from tuiapp.trainers.state.run_state import RunClock


@pytest.mark.parametrize("wrong_s", [3600.0, -3600.0])
def test_an_event_that_arrives_sets_a_wrong_clock_right(wrong_s: float) -> None:
    here = [1000.0 + wrong_s]
    clock = RunClock(lambda: here[0])
    clock.sync(999.0, more=False)
    here[0] += 2
    clock.sync(1002.0, more=False)
    assert clock.now() == 1002.0
    # Nothing new: the time passes all the same.
    here[0] += 60
    clock.sync(1002.0, more=False)
    assert clock.now() == 1062.0


def test_what_arrives_a_little_late_is_no_wrong_clock() -> None:
    clock = RunClock(lambda: 1000.0)
    clock.sync(10.0, more=False)
    clock.sync(996.0, more=False)
    assert clock.now() == 1000.0


def test_what_arrives_after_newer_events_shows_no_time() -> None:
    clock = RunClock(lambda: 1000.0)
    clock.sync(900.0, more=False)
    clock.sync(999.0, more=False)
    clock.sync(999.0, more=False)
    assert clock.now() == 1000.0
