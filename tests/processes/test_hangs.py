"""Line 12: runs that hang are told of, with the stacks of all ranks; runs that only take their time are not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, Watched, launched
from tests.kit.nodes import agent
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, LogLine, Stacks
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.metrics import STEP_TIME
from tuiapp.trainers.state.condition import run_words
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.view.rank_list import rank_rows

FLOOR_S = 3.0
ON_TWO = msgspec.structs.replace(MLP, launcher="join", nodes=2, network="lo")
FOUR = msgspec.structs.replace(MLP, devices=4)


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUIAPP_HANG_S", str(FLOOR_S))


def _hang_of(run: Watched, seconds: float = 60) -> Alert:
    return run.wait(Alert, lambda alert: alert.kind == "hang" and not alert.ended, seconds)


def _told_after(run: Watched, alert: Alert) -> float:
    return alert.mono - max(steps.mono for steps in run.reports())


def _folded(run: Watched) -> RunState:
    """What a view knows of it now."""
    state = RunState()
    reader = JournalReader(run.run.journal)
    while events := reader.read():
        for event in events:
            apply(state, event)
    return state


def test_a_rank_that_skips_a_collective_is_named_with_all_stacks(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake("hang:2:50")
    with launched(FOUR, runs_dir) as run:
        alert = _hang_of(run)
        print(f"\nhang of rank 2 of 4: told after {_told_after(run, alert):.1f} s (limit {FLOOR_S:g} s): {alert.text}")
        assert (alert.severity, alert.rank, alert.step) == ("error", 2, 49)
        assert "rank 2 is behind, at step 49; ranks 0, 1 and 3 wait at step 50" in alert.text
        stacks = {one.rank: one.text for one in run.of(Stacks)}
        assert set(stacks) == {0, 1, 2, 3}
        assert "_misbehave" in stacks[2]
        assert all("in all_reduce" in stacks[rank] for rank in (0, 1, 3))
        assert "\x1b" not in "".join(stacks.values())
        # It is told once, and the run can still be stopped.
        sidecars.send_command(run.run.commands, "stop-now")
        assert run.end().status == "stopped"
        assert len([one for one in run.of(Alert) if one.kind == "hang"]) == 1
        run.wait_gone()


@pytest.mark.nightly
def test_of_torch_the_collective_is_named_that_a_rank_has_not_begun(
    runs_dir: Path, fault: Callable[[str], None]
) -> None:
    fault("hang:1:20")
    with launched(MLP, runs_dir) as run:
        alert = _hang_of(run, 180)
        assert alert.rank == 1
        assert "rank 1 is behind, at step 19; rank 0 waits at step 20; rank 1 has not begun collective " in alert.text
        assert ", all_reduce of Float [" in alert.text
        stacks = {one.rank: one.text for one in run.of(Stacks)}
        assert "torch_ddp.py" in stacks[0]
        assert "_misbehave" in stacks[1]
        begun = {
            rank: re.match(r"Collectives: (\d+) begun, (\d+) done(; waits for .*)?\n\n", stacks[rank])
            for rank in (0, 1)
        }
        assert begun[0] is not None
        assert begun[1] is not None
        assert int(begun[0][1]) > int(begun[0][2]) == int(begun[1][1]) == int(begun[1][2])


@pytest.mark.nightly
def test_on_several_nodes_it_is_named_with_its_node_and_all_stacks(
    tmp_path: Path, runs_dir: Path, fake: Callable[..., None]
) -> None:
    fake("hang:1:20")
    with launched(ON_TWO, runs_dir) as run, agent(run, home=tmp_path / "node-b"):
        alert = _hang_of(run)
        assert alert.rank == 1
        assert "rank 1 (node 1, node-b) is behind, at step 19" in alert.text
        stacks = {one.rank: one for one in run.of(Stacks)}
        assert {rank: one.node for rank, one in stacks.items()} == {0: 0, 1: 1}
        assert "_misbehave" in stacks[1].text
        assert not [line for line in run.of(LogLine) if "gave no Python stacks" in line.text]


@pytest.mark.nightly
def test_a_stopped_rank_is_told_of_and_is_no_hang(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with launched(FOUR, runs_dir) as run:
        run.at_step(20)
        stopped, at = psutil.Process(run.pid(1)), time.monotonic()
        stopped.suspend()
        alert = run.wait(Alert, lambda alert: alert.kind == "stopped")
        print(f"\nSIGSTOP of rank 1: told after {alert.mono - at:.1f} s: {alert.text}")
        assert (alert.rank, alert.ended) == (1, False)
        assert f"kill -CONT {stopped.pid}" in alert.text
        # Every view follows the finding.
        state = _folded(run)
        assert run_words(state, time.time())[0] == "stalled"
        assert state.remaining() is state.examples_per_second is None
        words = {row.rank.rank: row.condition.text.split()[0] for row in rank_rows(state, time.time())}
        assert words == {0: "waiting", 1: "stopped", 2: "waiting", 3: "waiting"}
        # A run's status is written once a second.
        wait_until(lambda: summarise(run.run).reason == alert.text)
        info = summarise(run.run)
        assert (info.status, info.summary.examples_per_second) == ("running", None)
        step = run.reports()[-1].last_step
        stopped.resume()
        run.wait(Alert, lambda alert: alert.kind == "stopped" and alert.ended)
        # No signal was left waiting for it: it goes on.
        run.at_step(step + 100)
        state, lasted = _folded(run), time.monotonic() - at
        assert run_words(state, time.time())[0] == "running"
        # An entry may stand for several steps.
        columns = [(steps.highs or {}).get(STEP_TIME, steps.values[STEP_TIME]) for steps in run.reports(0)]
        times = [seconds or 0.0 for column in columns for seconds in column]
        assert max(times) > FLOOR_S
        # One step took as long as the stall; what is left of the run does not go at that pace.
        assert (state.step_s or lasted) < FLOOR_S / 20
        assert state.examples_per_second
        wait_until(lambda: not summarise(run.run).reason)
        assert run.of(Stacks) == []
        assert {one.kind for one in run.alerts()} == {"stopped"}
