"""What runs will take, as earlier ones took."""

from __future__ import annotations

import msgspec
import pytest

from tests.kit.runs_app import info
from tuiapp.library.queue_words import cost_words
from tuiapp.trainers.experiments.pace import Cost, cost, kind


def test_by_the_newest_of_a_kind() -> None:
    earlier = info(1, devices=4, platform="cuda")
    assert earlier.config is not None
    known = {kind(earlier.config): earlier}
    # It took 17.5 s for 290 steps.
    expected = cost(7, 2, earlier.config, 580, known)
    assert expected == pytest.approx((4 * 35.0, 7 * 4 * 35 / 3600))
    words = cost_words(expected)
    assert words.startswith("about 2m 20s, 0.27 GPU hours, until ")
    assert cost_words(expected, at_most=True).startswith("at most 2m 20s")
    on_cpu = msgspec.structs.replace(earlier.config, platform="cpu")
    assert cost(1, 2, on_cpu, 580, known) is None, "a CPU is another kind"
    known[kind(on_cpu)] = earlier
    assert cost(1, 2, on_cpu, 0, known, ["seed"]) == Cost(17.5, 0.0), (
        "of unknown steps it is as long as the earlier one"
    )
    assert cost(1, 2, on_cpu, 0, known, ["seed", "epochs"]) is None, "they take differently long"
    other = msgspec.structs.replace(earlier.config, model="mlp")
    assert cost_words(cost(7, 2, other, 580, known)) == "", "nothing is known of another kind"
