"""The curves of ranks and of whole runs, taken in together or one by one, with attempts and damage."""

from __future__ import annotations

import gc
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.digest_runs import digest_of
from tests.kit.reported import step_event, with_values
from tuiapp.trainers.contract.events import AnyEvent, DeviceSample, Metrics
from tuiapp.trainers.contract.metrics import (
    DATA_WAIT,
    EXAMPLES,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    RATE,
    SCALE,
    SKIPPED,
    STEP_TIME,
    SYNC_WAIT,
    TEST_ACCURACY,
    TEST_LOSS,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import ALL, MAX_CURVES, MEAN_BUCKETS, Curves
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.known_metrics import KNOWN, UTILIZATION
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.series import Series
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


ENTRIES = 10
NAMES = (LOSS, EXAMPLES, STEP_TIME, LEARNING_RATE, RATE)


def batch(number: int, *, kind: str) -> Metrics:
    """One of a row of events, in which all fields stay the same, or only some."""
    loss = 1.0 if kind == "all the same" else 1.0 / (number + 1)
    odd = number == 40
    losses: list[float | None] = [loss] * ENTRIES
    if kind == "one is not finite" and odd:
        losses[3] = None
    count = 3 if kind == "one count differs" and odd else 4
    last_examples = 7 if kind == "the last one is short" and number == 79 else 32
    return step_event(
        0,
        1 + 4 * ENTRIES * number,
        losses,
        seconds=0.005,
        examples=[32] * (ENTRIES - 1) + [last_examples],
        rates=[0.1] * ENTRIES,
        counts=[count] * ENTRIES,
        lows={LOSS: [0.5] * ENTRIES} if number % 2 else None,
        highs={LOSS: [2.0] * ENTRIES} if number % 2 else None,
    )


def test_queued_events_leave_nothing_that_garbage_collections_visit() -> None:
    """A key would wait for them: of 512 ranks there were 200,000 objects."""
    curves = Curves()
    curves.add(batch(0, kind="losses change"))
    curves.add(batch(1, kind="losses change"))
    gc.collect()
    before = len(gc.get_objects())
    for number in range(2, 60):
        curves.add(batch(number, kind="losses change"))
    assert len(gc.get_objects()) - before < 20


def test_names_that_come_apart_and_together_are_one_curve() -> None:
    curves = Curves()
    for first in range(1, 61, 3):
        curves.add(Metrics(rank=0, first_step=first, values={LOSS: [1.0 * first], "other": [0.0]}, **h.at(1.0)))
        curves.add(Metrics(rank=0, first_step=first + 1, values={LOSS: [first + 1.0]}, **h.at(1.0)))
        curves.add(Metrics(rank=0, first_step=first + 2, values={LOSS: [None]}, **h.at(1.0)))
        if first == 31:
            assert curves[0, LOSS].last_step == 33
    wanted = [float("nan") if step % 3 == 0 else step for step in range(1, 61)]
    np.testing.assert_equal(curves[0, LOSS].means(), wanted)


@pytest.mark.parametrize(
    "kind", ["all the same", "losses change", "one is not finite", "one count differs", "the last one is short"]
)
def test_together_or_one_by_one(kind: str) -> None:
    together, one_by_one = Curves(), Curves()
    for number in range(80):
        together.add(batch(number, kind=kind))
        one_by_one.add(batch(number, kind=kind))
        for name in NAMES:
            assert one_by_one[0, name].last_step >= 40 * number
    for name in NAMES:
        one, other = together[0, name], one_by_one[0, name]
        assert len(one) > 0
        np.testing.assert_array_equal(one.middles(), other.middles())
        np.testing.assert_allclose(one.means(), other.means(), rtol=1e-12)
        np.testing.assert_array_equal(one.reduce(50, 1, one.last_step).high, other.reduce(50, 1, other.last_step).high)


def test_a_metric_that_comes_late_and_one_that_comes_now_and_then() -> None:
    curves = Curves()
    for number in range(80):
        event = batch(number, kind="losses change")
        if number >= 40:
            event.values["late"] = [float(number)] * ENTRIES
        curves.add(event)
        curves.add(Metrics(rank=0, first_step=event.last_step, values={"val/ppl": [float(number)]}))
        if number % 7 == 0:
            assert curves[0, "val/ppl"].last == number
    assert (curves[0, "late"].first_step, curves[0, "late"].last) == (1604, 79.0)
    assert len(curves[0, "val/ppl"]) == 80
    assert list(curves.names) == [LOSS, LEARNING_RATE, EXAMPLES, STEP_TIME, RATE, "val/ppl", "late"]


def test_there_are_so_many_metrics_and_no_more() -> None:
    many: dict[str, list[float | None]] = {f"m{number}": [1.0] for number in range(MAX_CURVES + 50)}
    curves = Curves()
    for step in (1, 2):
        curves.add(Metrics(rank=0, first_step=step, values={"loss": [2.0], **many}))
    assert (len(curves.names), curves.full) == (MAX_CURVES, True)
    assert curves[0, "loss"].last_step == 2
    assert curves[0, f"m{MAX_CURVES - 2}"].last_step == 2
    assert len(curves[0, f"m{MAX_CURVES}"]) == 0
    state = RunState()
    for step in (1, 2):
        apply(state, Metrics(rank=0, first_step=step, values=many))
    assert [entry.text for entry in state.log] == ["more than 16,384 curves: later metrics are not charted"]


def test_thousands_of_metrics_are_added_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    added = 0
    add = Series.add

    def counted(series: Series, *given: Any, **more: Any) -> None:
        nonlocal added
        added += 1
        add(series, *given, **more)

    monkeypatch.setattr(Series, "add", counted)
    curves = Curves(closest=128, most=0)
    for step in range(1, 513):
        curves.add(Metrics(rank=0, first_step=step, values={f"m{number}": [1.0] for number in range(200)}))
    # Each curve was added to twice, not at each step.
    assert added <= 2 * 200


@pytest.mark.parametrize("by_rank", [True, False])
def test_curves_go_on_from_a_digest(tmp_path: Path, by_rank: bool) -> None:
    """Whether all came in events, or the first half as buckets: the same, to the resolution."""
    batches = [
        msgspec.structs.replace(batch(number, kind="losses change"), rank=rank)
        for number in range(600)
        for rank in range(2)
    ]
    straight = Curves(by_rank=by_rank)
    straight.fold([h.started(2), *batches])
    loaded = digest_of(RunDir(tmp_path), [h.started(2), *batches[:600]]).curves
    loaded = loaded if by_rank else loaded.joined()
    loaded.fold(batches[600:])
    for rank in range(2) if by_rank else (ALL,):
        for name in NAMES:
            one, other = (curves[rank, name].reduce(20, 1, 24_000) for curves in (straight, loaded))
            np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)
            np.testing.assert_allclose(one.high, other.high, rtol=1e-6)
    assert loaded.names.keys() == straight.names.keys()


@pytest.mark.nightly
def test_curves_of_hundreds_of_ranks_and_gpus_are_bounded_together() -> None:
    """They took 300 MB once they were full, which they were after half an hour."""
    state = RunState()
    for first in range(1, 8001, 1000):
        for rank in range(512):
            apply(state, Metrics(rank=rank, first_step=first, values={LOSS: [1.0] * 1000}, **h.at(float(first))))
    counts = [len(state.curves[rank, LOSS]) for rank in range(512)]
    assert sum(counts) < 130_000
    assert min(counts) >= 64
    # Those of the first ranks are read more closely.
    assert min(counts[:4]) > 2000
    for step in range(1, 301):
        state.step = step
        for gpu in range(512):
            apply(
                state,
                DeviceSample(
                    index=gpu, uuid=f"GPU-{gpu}", name="NVIDIA H200", utilization_percent=90.0, **h.at(float(step))
                ),
            )
    counts = [len(curve.series) for curve in state.utilization.values()]
    assert sum(counts) < 80_000
    assert min(counts) >= 64


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ([batch(0, kind="losses change"), batch(1, kind="losses change")], 0.5),
        ([batch(1, kind="losses change"), batch(0, kind="losses change")], 0.5),
        ([step_event(0, 1, [3.0, 2.0]), step_event(0, 1, [5.0])], 2.0),
        ([step_event(0, 1, [3.0, None])], None),
        ([step_event(0, 1, [3.0, 2.0], lasts={LOSS: [9.0, 8.0]}, counts=[2, 2], lows=None, highs=None)], 8.0),
    ],
    ids=["in order", "late", "a step once more", "not finite", "of windows"],
)
def test_the_last_value_is_that_of_the_curve_whether_or_not_it_is_queued(
    events: list[Metrics], last: float | None
) -> None:
    curves, read = Curves(), Curves()
    for event in events:
        curves.add(event)
        read.add(event)
        expected = read[0, LOSS].last
        np.testing.assert_equal(curves.last(0, LOSS), expected)
    np.testing.assert_equal(expected, np.nan if last is None else last)
    assert curves.last(1, LOSS) is None
