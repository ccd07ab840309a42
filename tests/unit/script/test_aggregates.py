"""What `define_metric` makes of a metric's values."""

from __future__ import annotations

from math import inf, nan

import pytest

from tuiapp.trainers.script.client import Aggregates


@pytest.mark.parametrize(
    ("summary", "goal", "comes_to"),
    [
        ("max", "", {"val/acc": 4.0}),
        ("min", "", {"val/acc": 1.0}),
        ("mean", "", {"val/acc": 2.5}),
        ("first", "", {"val/acc": 3.0}),
        ("last", "", {"val/acc": 2.0}),
        ("copy", "", {"val/acc": 2.0}),
        ("best", "maximize", {"val/acc": 4.0}),
        ("best", "", {"val/acc": 1.0}),
        ("none", "", {}),
        ("min, max", "", {"val/acc/min": 1.0, "val/acc/max": 4.0}),
    ],
)
@pytest.mark.parametrize("name", ["val/acc", "val/*", "*"])
def test_what_a_metric_comes_to(name: str, summary: str, goal: str, comes_to: dict[str, float]) -> None:
    aggregates = Aggregates()
    aggregates.define(name, summary, goal)
    for values in ([3.0, nan], [4.0, 1.0], [2.0]):
        aggregates.add("val/acc", values)
    assert aggregates.take() == pytest.approx(comes_to)
    assert aggregates.take() == {}


def test_a_metrics_own_definition_goes_before_patterns() -> None:
    aggregates = Aggregates()
    aggregates.define("val/acc", "max")
    aggregates.define("val/*", "min")
    for name in ("val/acc", "val/loss", "loss"):
        aggregates.add(name, [1.0, 2.0])
    assert aggregates.take() == {"val/acc": 2.0, "val/loss": 1.0}


def test_a_run_that_goes_on_keeps_what_it_came_to() -> None:
    aggregates = Aggregates()
    aggregates.restore({"acc": 0.9, "gap": "inf", "other": "text"})
    aggregates.define("*", "max")
    for name in ("acc", "gap"):
        aggregates.add(name, [0.5])
    assert aggregates.take() == {"acc": 0.9, "gap": inf}
