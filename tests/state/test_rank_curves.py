"""A rank's curves are the same whether its events are taken in together or one by one."""

from __future__ import annotations

import numpy as np
import pytest

from trainers.contract.events import Steps
from tuiapp.state.columns import STEP_METRICS
from tuiapp.state.curves import RankCurves

ENTRIES = 10


def batch(number: int, *, kind: str) -> Steps:
    """One of a row of events, in which all fields stay the same, or only some."""
    loss = 1.0 if kind == "all the same" else 1.0 / (number + 1)
    odd = number == 40
    losses: list[float | None] = [loss] * ENTRIES
    if kind == "one is not finite" and odd:
        losses[3] = None
    count = 3 if kind == "one count differs" and odd else 4
    last_examples = 7 if kind == "the last one is short" and number == 79 else 32
    return Steps(
        rank=0,
        first_step=1 + 4 * ENTRIES * number,
        losses=losses,
        losses_min=[0.5] * ENTRIES,
        losses_max=[2.0] * ENTRIES,
        seconds=[0.005] * ENTRIES,
        examples=[32] * (ENTRIES - 1) + [last_examples],
        learning_rates=[0.1] * (ENTRIES if not (kind == "a field is too short" and odd) else 4),
        counts=[count] * ENTRIES,
    )


@pytest.mark.parametrize(
    "kind",
    [
        "all the same",
        "losses change",
        "one is not finite",
        "one count differs",
        "the last one is short",
        "a field is too short",
    ],
)
def test_together_or_one_by_one(kind: str) -> None:
    together, one_by_one = RankCurves(), RankCurves()
    for number in range(80):
        together.add(batch(number, kind=kind))
        one_by_one.add(batch(number, kind=kind))
        one_by_one["loss"]
    for metric in STEP_METRICS:
        one, other = together[metric], one_by_one[metric]
        np.testing.assert_array_equal(one.middles(), other.middles())
        np.testing.assert_array_equal(one.means(), other.means())
        np.testing.assert_array_equal(one.reduce(50, 1, one.last_step).high, other.reduce(50, 1, other.last_step).high)
