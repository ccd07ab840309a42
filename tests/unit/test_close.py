"""Comparisons note how much of their tolerance they needed, and tolerances grow with what is rounded."""

from __future__ import annotations

from math import inf, nan

import pytest
from msgspec.structs import replace

from tests.kit.close import UNIT, Margin, assert_close, in_training, margins, rounding
from tuiapp.trainers.config.run_config import RunConfig

MLP = RunConfig(model="mlp", optimizer="sgd", max_steps=8)


def test_a_comparison_notes_its_margin() -> None:
    assert_close([1.0, 2.0], [1.0, 2.25], 1.0)
    assert_close(8.0, 10.0, 0.25, relative=True)
    assert_close([0.0], [0.0], 0.0)
    assert margins == [Margin(0.25, 0.25, 1.0), Margin(0.8, 2.0, 2.5), Margin(0.0, 0.0, 0.0)]


@pytest.mark.parametrize("found", [[1.0, 2.5], [1.0, nan], [inf, 2.0], [1.0]])
def test_what_is_too_far_off_fails(found: list[float]) -> None:
    with pytest.raises(AssertionError, match=r"weights"):
        assert_close(found, [1.0, 2.0], 0.25, name="weights")
    # What fails is meant to.
    margins.clear()


def test_tolerances_follow_from_the_arithmetic() -> None:
    assert rounding(100, size=2) == 4 * UNIT["float32"] * 10 * 2
    assert in_training(MLP) < in_training(MLP, parts=2) < in_training(replace(MLP, model="net"))
    assert in_training(MLP) < in_training(replace(MLP, optimizer="adam")) < in_training(MLP, dtype="float16")
