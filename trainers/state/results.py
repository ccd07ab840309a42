"""What runs came to, by the names of metrics."""

from __future__ import annotations

from tuiapp.trainers.state.summary import RunInfo


def result_value(info: RunInfo, name: str) -> object:
    """Returns what a run came to, by a metric's name; what a script sums up has names of its own. None for none."""
    summary = info.summary
    group, _, last = name.rpartition("/")
    value: object = summary.loss if name == "loss" else None
    if group == summary.evaluated_on:
        value = {"loss": summary.test_loss, "accuracy": summary.test_accuracy}.get(last)
    if value is None:
        value = info.facts.summary.get(name)
    if value is None and (figures := summary.metrics.get(name)) is not None:
        value = figures.last
    return value


def result_values(info: RunInfo) -> dict[str, object]:
    """Returns all results of a run by name."""
    summary = info.summary
    evaluated = (f"{summary.evaluated_on}/loss", f"{summary.evaluated_on}/accuracy")
    names = dict.fromkeys((*summary.metrics, *info.facts.summary, "loss", *evaluated))
    return {name: value for name in names if (value := result_value(info, name)) is not None}
