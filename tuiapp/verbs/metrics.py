"""`tuiapp metrics`: what a run's metrics have come to, and their curves in a few points."""

from __future__ import annotations

import math
from argparse import Namespace

import numpy as np

from tuiapp.trainers.state.known_metrics import metric, ordered
from tuiapp.trainers.state.series import Series, not_finite
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import MISSING, in_json
from tuiapp.verbs.output import UsageError, aligned, print_json
from tuiapp.verbs.sources import run_of
from tuiapp.view.run_values import unknown_name


def show_metrics(options: Namespace) -> int:
    """Prints a line for each metric, the mean over the ranks; as JSON also its curve, reduced to `--points`."""
    run = run_of(options)
    info = summarise(run)
    if not info.is_readable:
        raise UsageError(f"{run.run_id} cannot be read: {info.problem}")
    state = read_run(run)
    curves = state.curves.joined()
    names = ordered(curves.names)
    for name in options.metrics:
        if name not in names:
            raise UsageError(f"{name!r} is no metric of {run.run_id}: {unknown_name(name, names)}")
    chosen = {name: curves.first(name) for name in options.metrics or names}
    if options.json:
        by = {name: by_name for name in chosen if (by_name := state.facts.step_metric_of(name)) in names}
        values = {
            name: _facts(series, options.points, curves.first(by[name]) if name in by else None)
            | ({"step_metric": by[name]} if name in by else {})
            for name, series in chosen.items()
        }
        facts = {"run": run.run_id, "status": info.status, "steps": info.summary.steps, "metrics": values}
        print_json(facts, indent=None)
        return 0
    rows: list[tuple[str, ...]] = [("METRIC", "LAST", "LEAST", "GREATEST", "STEPS", "")]
    for name, series in chosen.items():
        words, bounds = metric(name).format, series.bounds or (None, None)
        steps = f"{series.first_step:,} to {series.last_step:,}" if len(series) else MISSING
        rows.append((metric(name).name, words(series.last), *map(words, bounds), steps, not_finite([series])))
    print(*aligned(rows), sep="\n")
    return 0


def _facts(series: Series, points: int, by: Series | None) -> dict[str, object]:
    """Returns what a curve comes to; `by` is the metric whose values at its steps are `x`."""
    least, greatest = series.bounds or (None, None)
    first, last = float(series.first_step), float(series.last_step)
    columns = max(1, min(points, series.last_step - series.first_step + 1)) if len(series) else 0
    means = series.reduce(columns, first, last).mean.tolist() if columns else []
    width = (last - first) / (columns - 1) if columns > 1 else 0.0
    steps = [round(first + column * width) for column in range(columns)]
    finite = [(step, value) for step, value in zip(steps, means, strict=True) if math.isfinite(value)]
    x = by.at(np.array([step for step, _ in finite], float)).tolist() if by is not None else []
    return {
        "last": in_json(series.last),
        "not_finite": {kind: count for kind, count in series.counts.items() if kind != "finite" and count},
        "least": least,
        "greatest": greatest,
        "steps": [step for step, _ in finite],
        "values": [float(f"{value:.6g}") for _, value in finite],
    } | ({"x": [in_json(value) for value in x]} if by is not None else {})
