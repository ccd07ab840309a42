"""What can be drawn as a curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tuiapp.state.columns import STEP_METRICS, StepMetric
from tuiapp.state.run_facts import RunFacts
from tuiapp.state.text import format_metric, format_percent, format_rate, format_seconds

MetricName: TypeAlias = Literal[
    "loss", "accuracy", "examples/s", "step time", "learning rate", "gradient norm", "utilization"
]


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity over the run."""

    name: MetricName
    format: Callable[[float | None], str]
    """A value in words, at most nine characters."""

    @property
    def of_steps(self) -> StepMetric | None:
        """Its name among those that each rank tells with its steps; None if it comes from elsewhere."""
        return next((name for name in STEP_METRICS if name == self.name), None)


def _percent(value: float | None) -> str:
    return format_percent(value / 100 if value is not None else None)


def _accuracy(value: float | None) -> str:
    return format_percent(value, 1)


def _rate(value: float | None) -> str:
    return f"{value:.1e}" if value is not None and 0 < abs(value) < 0.01 else format_rate(value)


def _learning_rate(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else format_metric(None)


METRICS: dict[MetricName, Metric] = {
    metric.name: metric
    for metric in (
        Metric("loss", format_metric),
        Metric("accuracy", _accuracy),
        Metric("examples/s", _rate),
        Metric("step time", format_seconds),
        Metric("learning rate", _learning_rate),
        Metric("gradient norm", format_metric),
        Metric("utilization", _percent),
    )
}
"""In the order in which the key for the next one goes through them."""


def available(state: RunFacts) -> list[MetricName]:
    """Those that a run has told of so far; the loss always."""
    return [name for name, metric in METRICS.items() if name == "loss" or _was_told(state, metric)]


def _was_told(state: RunFacts, metric: Metric) -> bool:
    if (name := metric.of_steps) is not None:
        return any(len(rank.curves[name]) for rank in state.ranks.values())
    return bool(state.evaluations if metric.name == "accuracy" else state.utilization)
