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
"""Of fewer nothing can be said."""


def importances(
    trials: Sequence[tuple[Mapping[str, object], float]], rises: bool, log_keys: Collection[str]
) -> dict[str, float]:
    """Returns each key's share of what decides between good and bad trials; the shares add up to 1.

    Returns none of fewer than `LEAST_TRIALS`, of a single key, and where all came to the same. `trials` are values by
    key, and what they came to.
    """
    keys = [key for key in dict.fromkeys(key for values, _ in trials for key in values) if _differ(trials, key)]
    if len(trials) < LEAST_TRIALS or len(keys) < 2 or len({value for _, value in trials}) < 2:
        return {}
    distributions = {key: _distribution([values[key] for values, _ in trials], key in log_keys) for key in keys}
    study = optuna.create_study(direction="maximize" if rises else "minimize")
    for values, value in trials:
        chosen = {key: _parameter(values[key], distributions[key]) for key in keys}
        study.add_trial(optuna.trial.create_trial(params=chosen, distributions=distributions, value=value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def _differ(trials: Sequence[tuple[Mapping[str, object], float]], key: str) -> bool:
    values = [values.get(key) for values, _ in trials]
    return None not in values and len(set(map(repr, values))) > 1


def _distribution(values: Sequence[object], log: bool) -> Any:
    numbers = [float(value) for value in values if is_number(value)]
    if len(numbers) < len(values):
        return CategoricalDistribution(sorted({str(value) for value in values}))
    return FloatDistribution(min(numbers), max(numbers), log=log and min(numbers) > 0)


def _parameter(value: object, distribution: Any) -> Any:
    return str(value) if hasattr(distribution, "choices") else float(str(value))


if __name__ == "__main__":
    print(json.dumps(importances(**json.load(sys.stdin))))
