"""Series of a rank's metrics: each in the order of its steps, whatever other metrics do."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import histories as h
from tests.kit.digest_runs import digest_of
from tests.kit.folding import extend, fold
from tuiapp.trainers.contract.events import Event, Metrics, RunStarted, decode, encode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.series import COUNT, LAST, TOTAL, Reduced, Series, not_finite, smooth


def filled(reduced: Reduced) -> list[int]:
    return [int(column) for column in np.flatnonzero(~np.isnan(reduced.mean))]


def means(reduced: Reduced) -> list[float]:
    return [float(reduced.mean[column]) for column in filled(reduced)]


def test_memory_is_bounded_and_every_extreme_survives() -> None:
    series = Series(capacity=64)
    for first in range(1, 100_001, 50):
        values: list[float | None] = [1.0] * 50
        if first == 70_001:
            values[7], values[8] = 99.0, -99.0
        extend(series, first, values)
    assert len(series) <= 64
    reduced = series.reduce(20, 1, 100_000)
    assert len(filled(reduced)) == 20
    assert np.nanmax(reduced.high) == 99.0
    assert np.nanmin(reduced.low) == -99.0
    assert series._table[COUNT].sum() == 100_000
    assert series._table[TOTAL].sum() == pytest.approx(99_998)


MANY_VALUES = st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=400)
CAPACITIES = st.sampled_from([2, 16, 257, 4096])


@given(MANY_VALUES, st.lists(st.integers(1, 60), min_size=1), CAPACITIES, st.integers(1, 220), st.randoms())
def test_whatever_comes_in_whatever_pieces_is_all_there(
    values: list[float | None], lengths: list[int], capacity: int, columns: int, order: random.Random
) -> None:
    """Extremes, sums, ends and gaps, though the pieces come out of order."""
    pieces, start = [], 0
    for length in itertools.cycle(lengths):
        pieces.append((start, values[start : start + length]))
        if (start := start + length) >= len(values):
            break
    order.shuffle(pieces)
    series = Series(capacity)
    for start, piece in pieces:
        extend(series, start + 1, piece)
    finite = [value for value in values if value is not None]
    reduced = series.reduce(columns, 1, max(2, len(values)))
    assert len(series) <= capacity
    assert series._table[COUNT].sum() == len(finite)
    assert reduced.gaps.sum() == len(values) - len(finite)
    if finite:
        assert (np.nanmin(reduced.low), np.nanmax(reduced.high)) == (min(finite), max(finite))
        assert series._table[TOTAL].sum() == pytest.approx(sum(finite), abs=1e-6)
    if finite and len(series) == len(values):
        # In a wider bucket the order in which values came stands for their order.
        assert series._table[LAST, series._table[COUNT] > 0][-1] == finite[-1]
    assert (series.first_step, series.last_step) == (1, len(values))


@given(MANY_VALUES, MANY_VALUES, st.integers(0, 1000), CAPACITIES, CAPACITIES, st.sampled_from([1.0, 4.0]))
def test_two_that_are_merged_are_as_one(
    ours: list[float | None], theirs: list[float | None], after: int, capacity: int, other_capacity: int, scale: float
) -> None:
    series, other = Series(capacity), Series(other_capacity)
    extend(series, 1, ours)
    extend(other, 1 + after, theirs)
    series.merge(other, scale)
    finite = [value for value in ours if value is not None]
    finite += [value * scale for value in theirs if value is not None]
    assert len(series) <= capacity
    assert (series.first_step, series.last_step) == (1, max(len(ours), after + len(theirs)))
    assert series._table[COUNT].sum() == len(finite)
    assert series._table[TOTAL].sum() == pytest.approx(sum(finite), abs=1e-6)
    assert series.bounds == ((min(finite), max(finite)) if finite else None)
    assert Series.restored(series.stored).stored == series.stored


def test_the_last_value_and_the_bounds_are_those_of_the_steps() -> None:
    series = Series(capacity=4)
    assert (series.last, series.bounds) == (None, None)
    extend(series, 1, [None, *(float(step) for step in range(2, 101))])
    assert (series.last, series.bounds) == (100.0, (2.0, 100.0))
    extend(series, 101, [1.0])
    assert series.bounds == (1.0, 100.0)
    reduced = series.reduce(1, 1, 100)
    assert (float(reduced.low[0]), float(reduced.high[0])) == (1.0, 100.0)


@pytest.mark.parametrize("hole", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_a_gap(hole: float | None) -> None:
    series = Series()
    extend(series, 1, [1.0, hole, 3.0])
    reduced = series.reduce(3, 1, 3)
    assert filled(reduced) == [0, 2]
    assert reduced.gaps.tolist() == [0, 1, 0]
    assert np.isnan(reduced.low[1])


def test_windows_stand_at_their_last_step_and_keep_their_extremes() -> None:
    series = Series()
    extend(series, 1, [2.0, 4.0], window=4, lows=[1.0, None], highs=[3.0, 9.0])
    assert series.last_step == 8
    reduced = series.reduce(8, 1, 8)
    assert filled(reduced) == [3, 7]
    assert (reduced.low[[3, 7]].tolist(), reduced.high[[3, 7]].tolist()) == ([1.0, 4.0], [3.0, 9.0])
    assert means(reduced) == [2.0, 4.0]


def test_a_part_of_the_curve() -> None:
    series = Series()
    extend(series, 1, [float(step) for step in range(1, 101)])
    assert means(series.reduce(20, 41, 60)) == [float(step) for step in range(41, 61)]


def test_by_places_of_their_own() -> None:
    series = Series()
    extend(series, 1, [1.0, 2.0, 3.0])
    reduced = series.reduce(11, 0.0, 10.0, np.array([0.0, 1.0, 10.0]))
    assert filled(reduced) == [0, 1, 10]


def test_truncation_forgets_later_steps() -> None:
    series = Series()
    extend(series, 1, [1.0] * 20)
    series.truncate(11)
    assert series.last_step == 10
    extend(series, 11, [5.0] * 3)
    assert means(series.reduce(13, 1, 13)) == [1.0] * 10 + [5.0] * 3
    series.truncate(1)
    assert (len(series), series.first_step, series.last_step) == (0, 0, 0)


def test_smoothing_starts_unbiased_and_keeps_gaps() -> None:
    first, gap, last = smooth(np.array([4.0, np.nan, 4.0]), 0.9)
    assert (first, last) == (pytest.approx(4.0), pytest.approx(4.0))
    assert np.isnan(gap)
    assert smooth(np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    flat = smooth(np.array([0.0] * 5 + [1.0] * 50), 0.9)
    assert flat[-1] == pytest.approx(1.0, abs=0.01)


def test_of_equal_values_the_best_is_the_first_or_where_another_is_best() -> None:
    steps = [29, 58, 87, 116]
    accuracy, loss = Series(), Series()
    accuracy.add(steps, [0.9, 0.97, 0.97, 0.97])
    loss.add(steps, [0.1, 0.3, 0.2, 0.25])
    assert accuracy.best(rises=True) == (0.97, 58)
    assert accuracy.best(rises=True, then=loss) == (0.97, 87)
    assert loss.best(rises=False, then=accuracy) == (0.1, 29)
    assert accuracy.best(rises=True, then=Series()) == (0.97, 58)


Row = tuple[int, Mapping[str, float]]


def begun(attempt: int = 1) -> RunStarted:
    resumed_from = None if attempt > 1 else 0
    return RunStarted(
        run_id="a", host="", pid=1, config={}, world_size=1, attempt=attempt, resumed_from=resumed_from, **h.at(attempt)
    )


def logged(rows: Iterable[Row]) -> list[Event]:
    return [
        Metrics(rank=0, first_step=step, values={name: [value] for name, value in values.items()}, **h.at(9))
        for step, values in rows
    ]


def attempts(*several: Iterable[Row]) -> list[Event]:
    return [event for number, rows in enumerate(several, 1) for event in (begun(number), *logged(rows))]


def curve(state: RunState, name: str) -> dict[int, float]:
    series = state.curves[0, name]
    return dict(zip(series.middles().astype(int).tolist(), series.means().tolist(), strict=True))


def steps(first: int, last: int, value: float = 1.0) -> list[Row]:
    return [(step, {"loss": value}) for step in range(first, last + 1)]


def test_a_late_value_takes_its_place() -> None:
    state = fold(attempts([*steps(1, 10), (3, {"val/loss": 0.3}), (7, {"val/loss": 0.7}), (5, {"val/loss": 0.5})]))
    assert curve(state, "val/loss") == {3: 0.3, 5: 0.5, 7: 0.7}
    assert [*curve(state, "loss")] == [*range(1, 11)]
    assert state.step == 10


def test_a_constant_that_is_written_again_leaves_the_curves() -> None:
    state = fold(attempts([(0, {"size": 5.0}), *steps(1, 60)], [(0, {"size": 5.0}), *steps(41, 50, 2.0)]))
    assert curve(state, "loss") == {step: 1.0 if step < 41 else 2.0 for step in range(1, 51)}
    assert curve(state, "size") == {0: 5.0}


def test_a_late_evaluation_is_no_rollback_even_as_the_first_report() -> None:
    first = [*steps(1, 60), *((step, {"val/loss": float(step)}) for step in (20, 40, 60))]
    again = [(20, {"val/loss": 0.5}), *steps(41, 70, 2.0), (60, {"val/loss": 0.6})]
    state = fold(attempts(first, again))
    assert curve(state, "val/loss") == {20: 0.5, 40: 40.0, 60: 0.6}
    assert curve(state, "loss") == {step: 1.0 if step < 41 else 2.0 for step in range(1, 71)}


def test_each_metric_goes_back_to_before_the_first_step_that_it_reports_anew() -> None:
    first = [*steps(1, 60), *((step, {"val/loss": float(step), "size": 3.0}) for step in (20, 40, 50))]
    state = fold(attempts(first, [(41, {"loss": 2.0}), (42, {"loss": 2.0, "val/loss": 0.1})]))
    assert curve(state, "loss") == {step: 1.0 if step < 41 else 2.0 for step in range(1, 43)}
    assert curve(state, "val/loss") == {20: 20.0, 40: 40.0, 42: 0.1}
    assert curve(state, "size") == {20: 3.0, 40: 3.0, 50: 3.0}


def test_validation_alone_is_progress() -> None:
    state = fold(attempts([(step, {"val/loss": 1.0}) for step in (8, 16, 24)]))
    assert state.step == 24


def test_steps_are_counted_from_0_if_something_goes_on_from_there() -> None:
    assert fold(attempts([(0, {"size": 5.0}), *steps(1, 20)])).steps_done == 20
    assert fold(attempts(steps(0, 20))).steps_done == 21
    assert fold(attempts([(0, {"loss": 5.0})])).steps_done == 1
    # Evaluations, the first of them before training, and what is logged by the epoch.
    assert fold(attempts([(0, {"val/loss": 5.0}), *steps(1, 20), (20, {"val/loss": 4.0})])).steps_done == 20
    assert fold(attempts([*steps(1, 20), *((step, {"by epoch": 1.0}) for step in range(3))])).steps_done == 20
    assert fold(attempts([*steps(0, 20), (20, {"grad_norm": 4.0})])).steps_done == 21


def test_what_is_not_finite_is_told_apart() -> None:
    values = [1.0, math.nan, math.inf, 1e35, math.nan, -math.inf]
    series = fold(attempts([(step, {"loss": value}) for step, value in enumerate(values)])).curves[0, "loss"]
    assert series.counts == {"finite": 2, "NaN": 2, "inf": 1, "−inf": 1}
    assert not_finite([series]) == "2 of 6 are NaN, 1 of 6 is inf, 1 of 6 is −inf, ends at −inf"
    assert series.last == -math.inf
    assert series.bounds == (1.0, 1e35)


STEPS = st.integers(0, 40)
VALUES = st.one_of(st.floats(-9, 9), st.sampled_from([math.nan, math.inf, -math.inf, 1e33]))
ROWS = st.lists(st.tuples(STEPS, st.dictionaries(st.sampled_from(["a", "b/c", "val/a"]), VALUES, min_size=1)))


@given(ROWS, st.integers(0, 40))
def test_any_order_and_repetition_from_the_journal_and_from_a_digest(rows: list[Row], cut: int) -> None:
    events = attempts(rows)
    with TemporaryDirectory() as directory:
        read = [event for each in events if (event := decode(encode(each)))]
        digest = digest_of(RunDir(Path(directory)), events[: cut + 1])
    wanted: dict[str, dict[int, float]] = {}
    for step, values in rows:
        for name, value in values.items():
            wanted.setdefault(name, {})[step] = value
    for state in (fold(events), fold([digest, *events[cut + 1 :]])):
        for name, known in wanted.items():
            series = state.curves[0, name]
            assert series.middles().astype(int).tolist() == sorted(known)
            np.testing.assert_array_equal(series._table[0], [known[step] for step in sorted(known)])
    assert len(read) == len(events)


@pytest.mark.parametrize("cut", range(1, 75, 3))
def test_a_resume_is_the_same_from_a_digest(tmp_path: Path, cut: int) -> None:
    events = attempts(
        [(0, {"size": 1.0}), *steps(1, 30), (20, {"val/loss": 0.2}), (30, {"val/loss": 0.3})],
        [(0, {"size": 1.0}), (20, {"val/loss": 0.1}), *steps(21, 40, 2.0), (30, {"val/loss": 0.4})],
        steps(31, 50, 3.0),
    )
    straight, digested = fold(events), fold([digest_of(RunDir(tmp_path), events[:cut]), *events[cut:]])
    for name in ("loss", "val/loss", "size"):
        assert curve(straight, name) == curve(digested, name)
    assert straight.curves.timeline.stored == digested.curves.timeline.stored
    assert straight.step == digested.step == 50
