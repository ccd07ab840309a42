"""Joining steps and rows into events: nothing thinned within the budget, everything covered beyond."""

from __future__ import annotations

import math
import random

import pytest

from tuiapp.trainers.contract.events import decode, encode
from tuiapp.trainers.contract.metrics import EXAMPLES, GRADIENT_NORM, LEARNING_RATE, LOSS, STEP_TIME, join, total
from tuiapp.trainers.run.step_batch import ENTRIES_PER_SECOND, Budget, pack_rows, pack_steps


def steps(first: int, losses: list[float]) -> dict[str, list[float]]:
    numbers = range(first, first + len(losses))
    return {
        LOSS: losses,
        STEP_TIME: [0.01 * number for number in numbers],
        EXAMPLES: [10] * len(losses),
        LEARNING_RATE: [0.1 / number for number in numbers],
    }


def windows(per_second: float, flush_s: float, seconds: float, jitter: float = 0.0) -> tuple[list[int], int]:
    """The windows of steady training whose steps are flushed more or less regularly, and the entries that it makes."""
    dice, start, budget = random.Random(0), 100.0, Budget(100.0)
    now, made, sizes, entries = start, 0, list[int](), 0
    while now < start + seconds:
        now += flush_s * (1 + jitter * (dice.random() - 0.5))
        steps = int((now - start) * per_second) - made
        made += steps
        if steps:
            sizes.append(budget.window(steps, now))
            entries += math.ceil(steps / sizes[-1])
    return sizes, entries


@pytest.mark.parametrize("per_second", [1, 5, 45, 50])
@pytest.mark.parametrize(("flush_s", "jitter"), [(0.2, 0.0), (0.2, 0.8), (1.0, 0.4), (0.02, 0.4)])
def test_up_to_50_a_second_every_step_is_kept(per_second: int, flush_s: float, jitter: float) -> None:
    sizes, _ = windows(per_second, flush_s, 100, jitter)
    assert set(sizes) == {1}


@pytest.mark.parametrize("per_second", [60, 100, 1000, 50_000])
def test_beyond_it_about_50_entries_a_second_are_kept(per_second: int) -> None:
    seconds = 100
    sizes, entries = windows(per_second, 0.2, seconds, jitter=0.4)
    assert max(sizes) > 1
    # Parts of an entry are rounded up in each flush.
    assert entries <= 1.1 * ENTRIES_PER_SECOND * seconds
    assert entries >= 0.5 * ENTRIES_PER_SECOND * seconds


@pytest.mark.parametrize(("world_size", "burst", "per_second"), [(1, 50_000, 1000), (4, 12_500, 250), (64, 2_500, 50)])
def test_a_script_has_a_store_for_bursts(world_size: int, burst: int, per_second: int) -> None:
    budget = Budget.of_script(0.0, world_size)
    assert [budget.window(burst, 0.0), budget.window(per_second, 1.0), budget.window(per_second, 1.5)] == [1, 1, 2]


def test_one_entry_a_step() -> None:
    event = pack_steps(3, range(7, 10), steps(7, [1.0, 2.0, 3.0]))
    assert (event.rank, event.first_step, event.last_step) == (3, 7, 9)
    assert event.values == {
        LOSS: [1.0, 2.0, 3.0],
        STEP_TIME: [0.07, 0.08, 0.09],
        EXAMPLES: [10, 10, 10],
        LEARNING_RATE: [0.1 / 7, 0.1 / 8, 0.1 / 9],
    }
    assert (event.counts, event.lows, event.highs) == (None, None, None)


def test_a_window_holds_mean_extremes_and_count() -> None:
    event = pack_steps(0, range(1, 6), steps(1, [1.0, 5.0, 3.0, 8.0, 2.0]), 3)
    assert (event.first_step, event.last_step) == (1, 5)
    assert event.counts == [3, 2]
    assert event.values == {
        LOSS: [3.0, 5.0],
        STEP_TIME: [0.02, 0.045],
        EXAMPLES: [30, 20],
        LEARNING_RATE: [0.1 / 3, 0.1 / 5],
    }
    assert (event.lows, event.highs, event.lasts) == ({LOSS: [1.0, 2.0]}, {LOSS: [5.0, 8.0]}, {LOSS: [3.0, 2.0]})
    assert event.joined() == [3, 2]


def test_no_entry_goes_beyond_an_epoch() -> None:
    event = pack_steps(0, range(8, 16), steps(8, [1.0] * 8), 3, steps_per_epoch=5)
    assert event.counts == [3, 3, 2]
    assert pack_steps(0, range(9, 13), steps(9, [1.0] * 4), 3, steps_per_epoch=10).counts == [2, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_not_hidden_by_its_neighbours(bad: float) -> None:
    value = None if math.isnan(bad) else bad
    assert pack_steps(0, range(1, 4), steps(1, [1.0, bad, 3.0])).values[LOSS] == [1.0, value, 3.0]
    event = pack_steps(0, range(1, 7), steps(1, [1.0, bad, 3.0, bad, 2.0, 2.0]), 3)
    assert event.values[LOSS] == [value, value]
    assert (event.lows, event.highs) == ({LOSS: [1.0, 2.0]}, {LOSS: [3.0, 2.0]})
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.1, 0.1, 0.1], 0.1),
        ([3.0, 3.0, 4.0], 4.0),
        ([3.0, 5.0, 4.0], 4.0),
        ([1.0, 1.5, 2.0], 1.5),
        ([math.inf, math.inf], math.inf),
        ([1.0, -math.inf], -math.inf),
    ],
)
def test_neighbours_are_joined(values: list[float], found: float) -> None:
    assert join(values) == found


def test_rows_of_a_script_are_as_logged() -> None:
    columns = {"loss": [3.0, 1.0, 2.0, math.nan], STEP_TIME: [0.12345678] * 4}
    events = list(pack_rows(1, [5, 9, 2, 2], columns))
    assert [(event.rank, event.first_step, event.counts, event.values["loss"]) for event in events] == [
        (1, 5, [1, 4], [3.0, 1.0]), (1, 2, None, [2.0]), (1, 2, None, [None]),
    ]  # fmt: skip
    assert {event.values[STEP_TIME][0] for event in events} == {0.12345678}
    assert all(event.joined() == [1] * len(event) for event in events)


def test_rows_of_a_script_are_joined_within_an_epoch() -> None:
    columns = {"loss": [6.0, 1.5, 2.0, 3.0, 4.0], "epoch": [2.0, 1.0, 1.0, 1.0, 1.0], "n": [9.0, 1.0, 2.0, 3.0, 4.0]}
    (event,) = pack_rows(0, [50, 10, 20, 30, 30], columns, 3)
    assert (event.first_step, event.counts, event.rows) == (10, [21, 20], [4, 1])
    assert event.values == {"loss": [2.625, 6.0], "epoch": [1.0, 2.0], "n": [4.0, 9.0]}
    assert event.lasts == {"loss": [4.0, 6.0], "n": [4.0, 9.0]}


@pytest.mark.parametrize("seed", range(20))
def test_every_step_is_covered_once(seed: int) -> None:
    dice = random.Random(seed)
    first, count, window = dice.randint(1, 1000), dice.randint(1, 500), dice.randint(1, 600)
    losses = [dice.random() for _ in range(count)]
    event = pack_steps(0, range(first, first + len(losses)), steps(first, losses), window)
    counts = event.counts or [1] * len(event.values[LOSS])
    assert sum(counts) == count
    assert event.last_step == first + count - 1
    assert {len(column) for column in event.values.values()} == {len(counts)}
    assert len(event) == len(counts)
    assert total(event.values[EXAMPLES]) == 10 * count
    assert total(event.values[LOSS], event.counts) == pytest.approx(sum(losses))


def test_norms_of_gradients_are_told_where_they_are_known() -> None:
    known = {GRADIENT_NORM: [1.0, 3.5, math.inf, 2.0]}
    assert pack_steps(0, range(1, 5), known).values == {GRADIENT_NORM: [1.0, 3.5, math.inf, 2.0]}
    joined = pack_steps(0, range(1, 5), known, 2)
    assert (joined.values, joined.lows) == ({GRADIENT_NORM: [2.25, math.inf]}, {GRADIENT_NORM: [1.0, 2.0]})


def test_steps_that_are_skipped_count_to_the_next_one() -> None:
    event = pack_steps(0, [50, 100, 150, 160], {"loss": [4.0, 3.0, 2.0, 1.0]})
    assert (event.first_step, event.last_step, event.counts) == (50, 160, [1, 50, 50, 10])
    joined = pack_steps(0, [50, 100, 150], {"loss": [4.0, 3.5, 2.0]}, 2)
    assert (joined.values, joined.counts, joined.last_step) == ({"loss": [3.75, 2.0]}, [51, 50], 150)
