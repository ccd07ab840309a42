"""Runs that are asked to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.harness import MLP, Gate, launched
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import StopRequested


@pytest.mark.parametrize("how", ["command", "SIGTERM"])
def test_all_ranks_stop_after_the_same_step(runs_dir: Path, fake: Callable[..., None], how: str) -> None:
    fake()
    with launched(MLP, runs_dir) as run:
        run.at_step(20)
        if how == "command":
            sidecars.send_command(run.run.commands, "stop")
        else:
            os.kill(run.started.pid, signal.SIGTERM)
        end = run.end()
        assert end.status == "stopped"
        assert not end.reason.endswith("at once")
        assert run.of(StopRequested)[0].by == how
        assert run.steps_of(0) == run.steps_of(1) == list(range(1, end.summary.steps + 1))
        run.wait_gone()
        took = end.mono - run.of(StopRequested)[0].mono
        print(f"\nstop by {how}: all ranks gone {took:.2f} s after the request, at step {end.summary.steps}")


@pytest.mark.usefixtures("no_framework")
def test_stopping_before_the_first_step(runs_dir: Path, gate: Callable[[int, int], Gate]) -> None:
    start = gate(1, 0)
    with launched(MLP, runs_dir) as run:
        sidecars.send_command(run.run.commands, "stop")
        run.wait(StopRequested)
        start.open()
        end = run.end()
        assert (end.status, end.summary.steps) == ("stopped", 0)
        run.wait_gone()


@pytest.mark.usefixtures("no_framework")
def test_stopping_now_waits_for_nothing(runs_dir: Path) -> None:
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        sidecars.send_command(run.run.commands, "stop-now")
        end = run.end()
        assert end.status == "stopped"
        run.wait_gone()
        assert end.mono - run.of(StopRequested)[0].mono < 3
