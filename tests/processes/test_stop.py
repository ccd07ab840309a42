"""Runs that are asked to stop, which checkpoint is the best, and how far apart they are."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import MLP, Gate, launched
from tests.kit.variants import mostly_nightly
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Checkpoint, StopRequested
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.run.supervisor import BETWEEN_SAVES_S
from tuiapp.trainers.state.summary import summarise


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


@pytest.mark.nightly
def test_of_short_epochs_one_in_half_a_minute_is_saved(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.01)
    config = msgspec.structs.replace(MLP, checkpoint_every=-1)
    with launched(config, runs_dir) as run:
        first = run.wait(Checkpoint, seconds=3 * BETWEEN_SAVES_S)
        assert first.mono - run.started.mono > BETWEEN_SAVES_S
        assert first.step % make_plan(config).steps_per_epoch == 0
        sidecars.send_command(run.run.commands, "checkpoint")
        asked = run.wait(Checkpoint, lambda event: event.step > first.step)
        assert asked.mono - first.mono < BETWEEN_SAVES_S


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("by", mostly_nightly(["accuracy", "loss"], "accuracy"))
def test_what_is_kept_marked_and_listed_as_best(
    by: str, real: bool, runs_dir: Path, fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not real:
        fake(step=0.001)
        monkeypatch.setenv("TUIAPP_TEST_EVALUATIONS", "0.9:0.5 0.4:0.7 0.6:0.8 0.5:0.6")
    config = RunConfig(
        model="mlp", platform="cpu", devices=1, learning_rate=0.01, epochs=4, checkpoint_every=1, keep_checkpoints=1,
        best=by,
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        found = run.evaluations()
        marked = [event.step for event in run.of(Checkpoint) if event.best]
    figures = [(one.accuracy, -(one.loss or 0.0)) for one in found]
    merits = figures if by == "accuracy" else [one[::-1] for one in figures]
    improved = [place for place, merit in enumerate(merits) if merit > max(merits[:place], default=(-math.inf, 0.0))]
    assert marked == [found[place].step for place in improved]
    best = found[improved[-1]]
    kept = {one.manifest.step: one.manifest for one in list_checkpoints(run.run.checkpoints)[0]}
    assert (kept[best.step].loss, kept[best.step].accuracy) == (best.loss, best.accuracy)
    info = summarise(run.run)
    least, greatest = min(one.loss or math.inf for one in found), max(one.accuracy for one in found)
    assert (info.summary.best_loss, info.best_accuracy) == (least, greatest)
