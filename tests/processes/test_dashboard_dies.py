"""Lines 2, 3 and 4: what happens to the dashboard, and what is pressed in it, reaches the ranks only as a request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.kit.harness import MLP, Watched, launched
from tests.kit.terminal import Terminal
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract.events import RankFailed, StopRequested
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState


def _attach(run: Watched) -> Terminal:
    command = [sys.executable, "-P", "-m", "tuiapp", "attach", run.run.run_id, "--runs-dir", str(run.run.path.parent)]
    return Terminal(command)


def _attached_sees(run: Watched) -> int:
    """The step that a view that attaches now sees, having read the journal from its start."""
    feed, state = JournalFeed(run.run), RunState(run.run.run_id)
    feed.start()
    wanted, deadline = max(run.steps_of(0)), time.monotonic() + 30
    while state.step < wanted:
        assert time.monotonic() < deadline
        for event in feed.take(10_000):
            apply(state, event)
        time.sleep(0.01)
    feed.close()
    return state.step


def test_training_goes_on_without_its_dashboard(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(MLP, runs_dir) as run:
        with _attach(run) as dashboard:
            dashboard.wait("RUNNING", 60)
            died = time.monotonic()
            dashboard.process.kill(9)
            dashboard.wait_exit(30)
        step = max(run.steps_of(0), default=0)
        run.at_step(step + 100)
        seen = _attached_sees(run)
        steps = run.steps_of(0)
        assert steps == list(range(1, len(steps) + 1))
        print(f"\n{seen} steps seen on attaching {time.monotonic() - died:.1f} s later, none missing")


@pytest.mark.nightly
def test_ctrl_c_reaches_no_rank(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(MLP, runs_dir) as run, _attach(run) as dashboard:
        dashboard.wait("RUNNING", 60)
        run.at_step(5)
        ranks = [psutil.Process(run.pid(rank)) for rank in (0, 1)]
        # None of them is in the terminal's session, so nothing typed there can reach them.
        assert all(rank.terminal() is None for rank in ranks)
        dashboard.press("ctrl+c", "ctrl+c")
        run.at_step(max(run.steps_of(0)) + 5)
        assert all(rank.is_running() for rank in ranks)
        assert [*run.of(RankFailed), *run.of(StopRequested)] == []
