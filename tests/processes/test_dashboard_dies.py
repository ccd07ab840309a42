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
from tests.kit.variants import mostly_nightly
from tuiapp.feeds.feed import JournalFeed
from tuiapp.trainers.contract.events import Checkpoint, RankFailed, StopRequested
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


@pytest.mark.parametrize("number", mostly_nightly([1, 9], 9), ids=["SIGHUP", "SIGKILL"])
def test_training_goes_on_without_its_dashboard(runs_dir: Path, fake: Callable[..., None], number: int) -> None:
    fake()
    with launched(MLP, runs_dir) as run:
        with _attach(run) as dashboard:
            dashboard.wait("RUNNING", 60)
            died = time.monotonic()
            dashboard.process.kill(number)
            dashboard.wait_exit(30)
        step = max(run.steps_of(0), default=0)
        run.at_step(step + 100)
        seen = _attached_sees(run)
        steps = run.steps_of(0)
        assert steps == list(range(1, len(steps) + 1))
        print(f"\nsignal {number}: {seen} steps seen on attaching {time.monotonic() - died:.1f} s later, none missing")


@pytest.mark.nightly
def test_ctrl_c_reaches_no_rank_and_a_second_stop_skips_the_save(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(save=25.0)
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
        for question in ("Stop this run", "Stop now"):
            dashboard.press("s")
            dashboard.wait(question)
            dashboard.wait_for_silence()
            dashboard.press(*(["enter"] if question == "Stop this run" else ["tab", "enter"]))
            run.wait(StopRequested, lambda request, now=question == "Stop now": request.now == now)  # type: ignore[misc]
        asked = time.monotonic()
        end = run.end()
        print(f"\nsecond stop: ended {time.monotonic() - asked:.1f} s after it, while a checkpoint took 25 s")
        assert end.status == "stopped"
        assert [one for one in run.of(Checkpoint) if one.step == end.summary.steps] == []
        run.wait_gone()
