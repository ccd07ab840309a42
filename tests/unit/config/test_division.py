"""How a batch is divided among ranks of unequal speed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuiapp.trainers.config.division import BAND, SMALLEST, apportion, relative_speeds, shares_by_speed


@pytest.mark.parametrize(
    ("units", "speeds", "parts"),
    [
        (48, [3.0, 1.0], (36, 12)),
        (48, [1.0, 1.0, 1.0], (16, 16, 16)),
        (50, [1.0, 1.0, 1.0], (17, 17, 16)),
        (4, [1000.0, 1.0, 1.0], (2, 1, 1)),
        (48, [1.0, 1000.0, 1.0], (2, 44, 2)),
        (3, [1000.0, 1.0, 1.0], (1, 1, 1)),
        (7, [2.0, 1.0], (5, 2)),
    ],
)
def test_a_batch_is_divided_by_speed(units: int, speeds: list[float], parts: tuple[int, ...]) -> None:
    assert apportion(units, speeds) == parts


ROUNDS = 11


def shares(units: int, rounds: Sequence[Sequence[float]]) -> tuple[int, ...]:
    return shares_by_speed(units, relative_speeds(rounds))


seconds = st.floats(1e-6, 1e3)


@st.composite
def measured(draw: st.DrawFn) -> list[list[float]]:
    """Each round's seconds of each rank: of any speeds, with any noise."""
    ranks, rounds = draw(st.integers(2, 6)), draw(st.integers(1, ROUNDS))
    return draw(st.lists(st.lists(seconds, min_size=ranks, max_size=ranks), min_size=rounds, max_size=rounds))


@st.composite
def nearly(draw: st.DrawFn, noise: float) -> tuple[list[float], list[list[float]]]:
    """Seconds of each rank, and rounds in which they are found with at most so much noise."""
    exact = draw(st.lists(seconds, min_size=2, max_size=6))
    factors = st.lists(st.floats(1 - noise, 1 + noise), min_size=len(exact), max_size=len(exact))
    found = draw(st.lists(factors, min_size=ROUNDS, max_size=ROUNDS))
    return exact, [[a * b for a, b in zip(exact, one, strict=True)] for one in found]


units = st.integers(6, 5000)


@given(units, measured())
def test_the_parts_make_the_whole_and_none_is_too_small(units: int, rounds: list[list[float]]) -> None:
    ranks = len(rounds[0])
    found = shares(units, rounds)
    assert (len(found), sum(found)) == (ranks, units)
    assert min(found) >= max(min(2, units // ranks), int(SMALLEST * units / ranks))


@given(units, measured(), st.randoms())
def test_ranks_in_another_order_have_the_same_shares(units: int, rounds: list[list[float]], random: Random) -> None:
    order = [*range(len(rounds[0]))]
    random.shuffle(order)
    mixed = [[one[place] for place in order] for one in rounds]
    speeds, others = relative_speeds(rounds), relative_speeds(mixed)
    assert others == tuple(speeds[place] for place in order)
    # Who has what is left over of equal ones is decided by the rank.
    pairs = sorted(zip(speeds, shares(units, rounds), strict=True))
    assert sorted(zip(others, shares(units, mixed), strict=True)) == pairs


@given(units, measured())
def test_a_faster_rank_has_no_less(units: int, rounds: list[list[float]]) -> None:
    speeds = relative_speeds(rounds)
    found = [*zip(speeds, shares(units, rounds), strict=True)]
    assert all(part >= other for speed, part in found for than, other in found if speed > than)


@given(st.integers(2, 500), nearly(noise=BAND / 2.2), st.data())
def test_noise_and_two_rounds_of_three_in_which_another_program_ran_change_nothing(
    each: int, given: tuple[list[float], list[list[float]]], data: st.DataObject
) -> None:
    exact, rounds = given
    alike = [[one / of for one, of in zip(found, exact, strict=True)] for found in rounds]
    rank, busy = data.draw(st.integers(0, len(exact) - 1)), data.draw(st.integers(0, ROUNDS * 2 // 3))
    for number in range(busy):
        alike[number][rank] *= data.draw(st.floats(1, 1000))
    assert shares(each * len(exact), alike) == (each,) * len(exact)


@given(st.integers(100, 5000), nearly(noise=0.02), st.data())
def test_clear_differences_are_followed_through_noise(
    units: int, given: tuple[list[float], list[list[float]]], data: st.DataObject
) -> None:
    exact, rounds = given
    mean = sum(1 / one for one in exact) / len(exact)
    wanted = [1 / one / mean for one in exact]
    assume(max(abs(one - 1) for one in wanted) > BAND + 0.05)
    # Another program ran in two of them.
    for number in range(2):
        rounds[number] = [data.draw(st.floats(1, 1000)) * one for one in rounds[number]]
    assert relative_speeds(rounds) == pytest.approx(wanted, rel=0.05)
