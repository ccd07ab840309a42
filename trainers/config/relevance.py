"""Configuration keys that have no effect beside the values of others, such as momentum beside adam.

What somebody asks for is refused when it would be ignored. A value that a preset has for its own optimizer, backend or
model goes with that; the run.toml of a run that was launched is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from trainers.config.catalog import MODELS
from trainers.config.options import Problem, Value, format_value
from trainers.config.run_config import OPTIONS, RunConfig, to_mapping

_WITH_MODELS = {"sync_batch_norm": tuple(model.name for model in MODELS.values() if model.batch_norm)}
"""Key → the models that it has an effect on."""


def inapplicable_keys(values: Mapping[str, object]) -> set[str]:
    """The keys that have no effect, given the values of all."""
    return {
        key
        for key, option in OPTIONS.items()
        if not option.applies(values) or values["model"] not in _WITH_MODELS.get(key, MODELS)
    }


def without_idle(config: RunConfig) -> RunConfig:
    """The same with the defaults where a value has no effect."""
    idle = inapplicable_keys(to_mapping(config))
    return msgspec.structs.replace(config, **{key: OPTIONS[key].default for key in idle})


def check_idle(config: RunConfig, given: Iterable[str]) -> list[Problem]:
    """What was asked for and would be ignored.

    Args:
        config: The whole configuration.
        given: The keys that somebody gave a value.
    """
    values = to_mapping(config)
    return [_problem(key, values) for key in sorted(inapplicable_keys(values) & set(given))]


def check_file(config: RunConfig) -> list[Problem]:
    """The same for a file: written by this program it has all keys, at their defaults where they have no effect."""
    return check_idle(config, [key for key, option in OPTIONS.items() if getattr(config, key) != option.default])


def _problem(key: str, values: Mapping[str, Value]) -> Problem:
    option = OPTIONS[key]
    other, allowed = option.only or ("model", ())
    if option.only is None or option.applies(values):
        other, allowed = "model", _WITH_MODELS[key]
    value, goes_with = format_value(values[key]), " or ".join(allowed)
    message = f"{value} would have no effect with {other} {values[other]}: it goes with {goes_with}."
    return Problem(key, message, also=(other,))
