"""How much each swept key matters."""

from __future__ import annotations

import math

import pytest

from tuiapp.trainers.experiments.importance import LEAST_TRIALS, importances

pytest.importorskip("optuna")


def trials(count: int) -> list[tuple[dict[str, object], float]]:
    """What they come to depends on the rate by factors, and hardly on the rest."""
    found = list[tuple[dict[str, object], float]]()
    for number in range(count):
        rate, decay = 10.0 ** (-4 + number % 6 * 0.5), number * 7 % 5 * 0.1
        values: dict[str, object] = {"rate": rate, "decay": decay, "kind": "ab"[number % 2], "same": 1}
        found.append((values, -abs(math.log10(rate) + 2.5) - 0.01 * decay))
    return found


def test_what_decides_has_the_largest_share() -> None:
    found = importances(trials(30), True, {"rate"})
    assert set(found) == {"rate", "decay", "kind"}, "not what is the same in all"
    assert found["rate"] > 0.7
    assert math.fsum(found.values()) == pytest.approx(1.0)
    worst = importances([(values, -value) for values, value in trials(30)], False, {"rate"})
    assert worst == pytest.approx(found), "less is better of what was turned"


def test_nothing_is_said_of_few_of_one_key_and_of_what_is_all_alike() -> None:
    assert importances(trials(LEAST_TRIALS - 1), True, ()) == {}
    assert importances([({"rate": values["rate"]}, value) for values, value in trials(30)], True, ()) == {}
    assert importances([(values, 1.0) for values, _ in trials(30)], True, ()) == {}
