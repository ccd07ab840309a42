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
    known = ordered(curves.names)
    for name in options.metrics:
        if name not in known:
            raise UsageError(f"{name!r} is no metric of {run.run_id}: {unknown_name(name, known)}")
    names = options.metrics or known
    found = {name: curves.first(name) for name in names}
    if options.json:
        facts = {"run": run.run_id, "status": info.status, "steps": info.summary.steps}
        by = {name: each for name in names if (each := state.facts.step_metric_of(name)) in known}
        values = {
            name: _facts(one, options.points, curves.first(by[name]) if name in by else None)
            | ({"step_metric": by[name]} if name in by else {})
            for name, one in found.items()
        }
        print_json({**facts, "metrics": values}, indent=None)
        return 0
    rows = [("METRIC", "LAST", "LEAST", "GREATEST", "STEPS", "")]
    for name, series in found.items():
        words, bounds = metric(name).format, series.bounds or (None, None)
        steps = f"{series.first_step:,} to {series.last_step:,}" if len(series) else MISSING
        rows.append(
            (metric(name).name, words(series.last), words(bounds[0]), words(bounds[1]), steps, not_finite([series]))
        )
    for line in aligned(rows):
        print(line)
    return 0


def _facts(series: Series, points: int, by: Series | None) -> dict[str, object]:
    """What a curve comes to; `by` is the metric whose values at its steps are `x`."""
    least, greatest = series.bounds or (None, None)
    first, last = float(series.first_step), float(series.last_step)
    columns = max(1, min(points, series.last_step - series.first_step + 1)) if len(series) else 0
    means = series.reduce(columns, first, last).mean.tolist() if columns else []
    width = (last - first) / (columns - 1) if columns > 1 else 0.0
    steps = [round(first + place * width) for place in range(columns)]
    known = [(step, value) for step, value in zip(steps, means, strict=True) if math.isfinite(value)]
    x = by.at(np.array([step for step, _ in known], float)).tolist() if by is not None else []
    return {
        "last": in_json(series.last),
        "not_finite": {kind: count for kind, count in series.counts.items() if kind != "finite" and count},
        "least": least,
        "greatest": greatest,
        "steps": [step for step, _ in known],
        "values": [float(f"{value:.6g}") for _, value in known],
    } | ({"x": [in_json(place) for place in x]} if by is not None else {})
