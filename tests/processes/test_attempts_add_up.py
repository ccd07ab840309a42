"""What a run took is what its attempts took that count: in its last event, in every view, and if it is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.harness import MLP, launched, resumed
from tests.kit.waiting import wait_until
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import AnyEvent, Metrics, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import EXAMPLES, STEP_TIME, total
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise

pytestmark = pytest.mark.nightly

APART_S = 4.0
"""Time between two attempts, in which nothing trains."""


def events_of(run: RunDir) -> list[AnyEvent]:
    reader, events = JournalReader(run.journal), list[AnyEvent]()
    while more := reader.read():
        events += more
    return events


def seen(run: RunDir, *, whole: bool) -> RunState:
    """What a view comes to, of all of the journal or from the digest on."""
    state, feed, deadline = RunState(), JournalFeed(run, whole=whole), time.monotonic() + 60
    feed.start()
    while feed.reading is not None:
        for event in feed.take(1000):
            apply(state, event)
        assert time.monotonic() < deadline
    feed.close()
    return state


def wait_apart() -> None:
    time.sleep(APART_S)  # what is tested: time that passes while nothing trains


def test_of_a_run_that_is_stopped_and_resumed_and_lost(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.005)
    with launched(MLP, runs_dir) as run:
        run.at_step(600)
        sidecars.send_command(run.run.commands, "stop")
        first = run.end().summary
    assert first.seconds > 3
    wait_apart()
    with resumed(run.run) as again:
        again.at_step(first.steps + 50)
        wait_until(lambda: summarise(run.run).summary.seconds > first.seconds)
        live = summarise(run.run)
        state = seen(run.run, whole=True)
        assert state.elapsed(time.time()) == pytest.approx(live.summary.seconds, abs=3.0)
        sidecars.send_command(run.run.commands, "stop")
        second = again.end().summary
    events = events_of(run.run)
    starts = [event for event in events if isinstance(event, RunStarted)]
    own = events[-1].time - starts[1].time
    assert second.seconds == pytest.approx(first.seconds + own, abs=1.0)
    assert second.seconds < events[-1].time - starts[0].time - APART_S + 1.0
    # The mean of both, each without its own beginning: not that of the last few steps.
    steps = [event for event in events if isinstance(event, Metrics) and event.rank == 0 and STEP_TIME in event.values]
    mean = 2 * sum(total(each.values[EXAMPLES]) for each in steps)
    mean /= sum(total(each.values[STEP_TIME], each.counts) for each in steps)
    assert second.examples_per_second == pytest.approx(mean, rel=0.2)
    assert summarise(run.run).summary == second
    for whole in (True, False):
        state = seen(run.run, whole=whole)
        assert state.elapsed(0.0) == second.seconds
        # What a fold without that sum comes to is the same.
        assert state.curves.timeline.end == pytest.approx(second.seconds, abs=1.0)

    wait_apart()
    with resumed(run.run) as lost:
        lost.at_step(second.steps + 50)
        os.kill(lost.started.pid, signal.SIGKILL)
        lost.wait_gone()
    info = summarise(run.run)
    assert info.status == "lost"
    last = events_of(run.run)
    attempt = last[-1].time - next(event for event in reversed(last) if isinstance(event, RunStarted)).time
    assert info.summary.seconds == pytest.approx(second.seconds + attempt, abs=1.5)
    assert info.summary.steps >= second.steps + 50
