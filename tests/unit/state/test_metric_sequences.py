"""Each metric of a rank is a sequence of its own: in the order of its steps, whatever other metrics do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import histories as h
from tests.kit.digest_runs import digest_of
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import Event, Metrics, RunStarted, decode, encode
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.series import not_finite

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
