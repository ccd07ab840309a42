"""How much each swept key matters for what trials come to: Optuna's PED-ANOVA, https://arxiv.org/abs/2304.10255.

`python -m tuiapp.trainers.experiments.importance` works it out for a process that does not import Optuna.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from tuiapp.trainers.contract.metrics import is_number

LEAST_TRIALS = 4
"""Fewest trials of which anything can be said."""


def importances(
    trials: Sequence[tuple[Mapping[str, object], float]], rises: bool, log_keys: Collection[str]
) -> dict[str, float]:
    """Returns each key's share of what decides between good and bad trials; the shares add up to 1.

    Returns none of fewer than `LEAST_TRIALS`, of a single key, and where all came to the same. `trials` are values by
    key, and what they came to.
    """
    if len(trials) < LEAST_TRIALS or len({value for _, value in trials}) < 2:
        return {}
    columns = {key: _as_drawn([values.get(key) for values, _ in trials]) for key in trials[0][0]}
    columns = {key: column for key, column in columns.items() if len(set(column)) > 1}
    if len(columns) < 2:
        return {}
    distributions = {key: _distribution(column, key in log_keys) for key, column in columns.items()}
    study = optuna.create_study(direction="maximize" if rises else "minimize")
    for index, (_, value) in enumerate(trials):
        params = {key: column[index] for key, column in columns.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def _as_drawn(values: Sequence[object]) -> list[float] | list[str]:
    """Returns numbers, or texts if not all of the values are numbers; none if a trial has no value."""
    numbers = [float(value) for value in values if is_number(value)]
    return numbers if len(numbers) == len(values) else [] if None in values else list(map(str, values))


def _distribution(column: Sequence[Any], log: bool) -> Any:
    if isinstance(column[0], str):
        return CategoricalDistribution(sorted(set(column)))
    return FloatDistribution(min(column), max(column), log=log and min(column) > 0)


if __name__ == "__main__":
    print(json.dumps(importances(**json.load(sys.stdin))))
