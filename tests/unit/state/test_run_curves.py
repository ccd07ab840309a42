"""The curves of whole runs: ranks taken together, attempts, damage, and how several lie in one chart."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.reported import with_values
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    GRADIENT_NORM,
    LEARNING_RATE,
    RATE,
    SCALE,
    SKIPPED,
    STEP_TIME,
    SYNC_WAIT,
    TEST_ACCURACY,
    TEST_LOSS,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import ALL, MEAN_BUCKETS, Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.known_metrics import KNOWN, UTILIZATION
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import load, save
from tuiapp.view.chart import ChartOptions, build_comparison
from tuiapp.view.raster import rasterize


def curves_of(events: list[AnyEvent], piece: int = 7) -> Curves:
    curves = Curves(by_rank=False)
    for start in range(0, len(events), piece):
        curves.fold(events[start : start + piece])
    return curves


def at(curves: Curves, metric: str, step: int) -> float:
    series = curves[ALL, metric]
    return float(series.means()[np.flatnonzero(series.middles() == step)[0]])


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_the_mean_over_the_ranks_in_whatever_pieces_they_come(piece: int) -> None:
    curves = curves_of(h.completed(4), piece)
    assert at(curves, "loss", 100) == pytest.approx(sum(h.loss_at(100, rank) for rank in range(4)) / 4)
    # 24 examples in 50 ms on each of four ranks.
    assert at(curves, RATE, 100) == pytest.approx(4 * 24 / 0.05)
    assert at(curves, STEP_TIME, 100) == pytest.approx(0.05)
    assert at(curves, TEST_LOSS, 29) == pytest.approx(h.loss_at(29, 0) + 0.05)
    assert len(curves[ALL, TEST_ACCURACY]) == 10
    assert curves.steps_per_epoch == 29


def test_what_is_done_anew_takes_the_old_curves_place() -> None:
    curves = curves_of([*h.running(last_step=80), *interrupted.resumed(step=72)])
    assert curves[ALL, "loss"].last_step == 82
    assert at(curves, "loss", 75) == pytest.approx(0.3)
    # The time between the attempts is left out.
    assert curves.places(np.array([82.0]), "time")[0] < 20


def test_places_on_each_axis() -> None:
    curves = curves_of(h.completed())
    steps = np.array([29.0, 290.0])
    assert curves.places(steps, "step").tolist() == [29, 290]
    assert curves.places(steps, "epoch").tolist() == [1, 10]
    seconds = curves.places(steps, "time")
    assert 0 < seconds[0] < seconds[1] < 17.5
    assert np.isnan(Curves(by_rank=False).places(steps, "epoch")).all()


def test_memory_is_bounded() -> None:
    curves = Curves(by_rank=False)
    curves.fold([h.started()])
    for first in range(1, 200_000, 1000):
        curves.fold([h.steps(rank, first, first + 999, first / 100) for rank in range(2)])
    assert all(0 < len(curves[ALL, name]) <= MEAN_BUCKETS for name in curves.names)
    assert curves[ALL, "loss"].last_step == 200_000


def test_damage_is_stepped_over() -> None:
    good = h.steps(0, 1, 2, 3.0)
    curves = Curves(by_rank=False)
    curves.fold([msgspec.structs.replace(h.started(), resumed_from=-1)])
    curves.fold([msgspec.structs.replace(h.started(), world_size=2**70, steps_per_epoch=2**70)])
    assert curves.names == {}
    odd = with_values(good, loss=[None, math.inf], step_time=[0.0, 0.0], examples=[2**80, 1], lr=None)
    curves.fold([odd])
    assert curves[ALL, "loss"].last_step == 2
    assert len(curves[ALL, LEARNING_RATE]) == 0
    chart = build_comparison([("a", 0, curves)], ChartOptions(), columns=80, rows=10)
    assert not chart.curves


@pytest.mark.parametrize("axis", ["step", "time", "epoch", "examples"])
@pytest.mark.parametrize("metric", [name for name in KNOWN if name != UTILIZATION])
@pytest.mark.parametrize("log", [False, True])
def test_curves_over_each_other_each_with_its_letter(axis: str, metric: str, log: bool) -> None:
    runs = [
        ("a", 0, curves_of(h.completed())),
        ("b", 1, curves_of(interrupted.failed())),
        ("c", 2, Curves(by_rank=False)),
    ]
    look = ChartOptions(metric, axis, 0.6, log)
    chart = build_comparison(runs, look, columns=160, rows=20)
    if metric in (GRADIENT_NORM, DATA_WAIT, SYNC_WAIT, SCALE, SKIPPED):
        assert not chart.curves
        return
    assert [curve.label for curve in chart.curves] == ["a", "b"]
    assert {mark[2] for mark in chart.marks} == {"a", "b"}
    cells = rasterize(chart, 80, 20)
    text = {chr(code) for code in cells.characters.flat}
    assert "a" in text
    assert chart.x_ticks
    left, right = chart.x_range
    assert left < right


def test_curves_are_drawn_by_what_there_is() -> None:
    begun = h.started()
    batch = begun.config["global_batch_size"]
    assert isinstance(batch, int)
    assert curves_of(h.completed()).axes() == ["step", "time", "epoch", "examples"]
    assert curves_of(h.completed()).places(np.array([1.0, 10.0]), "examples").tolist() == [batch, 10.0 * batch]
    own = Curves()
    for step in range(1, 11):
        values = {"loss": 1 / step, "tokens": 1000 * step**2, "train/accuracy": step % 3}
        own.add(Metrics(rank=0, first_step=step, values={name: [float(one)] for name, one in values.items()}))
    assert own.axes() == ["step", "time", "tokens"]
    assert own.places(np.array([1.0, 2.0, 2.5, 10.0]), "tokens").tolist() == [1000, 4000, 6500, 100_000]
    chart = build_comparison([("a", 0, own.joined())], ChartOptions("loss", "tokens"), columns=100, rows=10)
    assert chart.extent == (1000, 100_000)
    assert chart.place_words(4000.0) == "tokens 4,000"


@pytest.mark.parametrize("by_rank", [True, False])
def test_a_metric_whose_steps_are_epochs_is_drawn_by_when_it_was_reported(by_rank: bool, tmp_path: Path) -> None:
    state = RunState(curves=Curves(by_rank=by_rank))
    for step in range(1, 31):
        apply(state, Metrics(rank=0, first_step=step, values={"loss": [1 / step]}, time=1000.0 + step))
        if step % 10 == 0:
            apply(state, Metrics(rank=0, first_step=step // 10, values={"val/f1": [0.5]}, time=1000.0 + step))
    run = RunDir(tmp_path)
    run.journal.write_bytes(b"x\n")
    save(run, state, 2, b"x\n")
    found = load(run)
    assert found is not None
    for curves in (state.curves, found.state.curves, state.curves.joined()):
        assert curves.places(np.array([1.0, 2.0, 3.0]), "time", "val/f1").tolist() == [9, 19, 29]
        assert curves.places(np.array([1.0, 2.0, 3.0]), "time", "loss").tolist() == [0, 1, 2]
    again = Metrics(rank=0, first_step=2, values={"val/f1": [0.6]}, time=1040.0)
    apply(state, again)
    assert state.curves.places(np.array([1.0, 2.0]), "time", "val/f1").tolist() == [9, 39], "of a repeated one the last"
