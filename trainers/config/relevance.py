"""Configuration keys that have no effect with the values of others, such as momentum with adam.

A requested value that would be ignored is refused. A preset's value for its own optimizer, backend or model is dropped
along with that; the run.toml of a launched run is accepted as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS, MODELS, takes
from tuiapp.trainers.config.options import Problem, Value, format_value
from tuiapp.trainers.config.run_config import OPTIONS, Check, RunConfig, build_config, to_mapping

_WITH_MODELS = {"sync_batch_norm": tuple(model.name for model in MODELS.values() if model.batch_norm)}
"""Key → the models that it affects."""

_FORMER_DEFAULTS = {"checkpoint_every": 1}
"""Key → an earlier default of it: files that were written then have it although it has no effect."""


def inapplicable_keys(values: Mapping[str, object]) -> set[str]:
    """Returns the keys that have no effect, given the values of all."""
    backend = str(values["backend"])
    return {
        key
        for key, option in OPTIONS.items()
        if not takes(backend, key)
        or not option.applies(values)
        or (values["model"] in MODELS and values["model"] not in _WITH_MODELS.get(key, MODELS))
    }


def drop_inapplicable(config: RunConfig) -> RunConfig:
    """Resets values without effect to their defaults."""
    idle = inapplicable_keys(to_mapping(config))
    return msgspec.structs.replace(config, **{key: OPTIONS[key].default for key in idle})


def check_inapplicable(config: RunConfig, keys: Iterable[str]) -> list[Problem]:
    """Reports keys in `given`, those set explicitly, that would be ignored."""
    values = to_mapping(config)
    return [_problem(key, values) for key in sorted(inapplicable_keys(values) & set(keys))]


def with_changes(base: Mapping[str, object], changes: Mapping[str, object], checks: Sequence[Check] = ()) -> RunConfig:
    """Builds a configuration from another's values and changes; what these leave without effect is reset.

    Raises ConfigError, also for a change that would have no effect.
    """
    values = {**base, **changes}
    if "global_batch_size" in changes and "per_device_batch_size" not in changes:
        values["per_device_batch_size"] = OPTIONS["per_device_batch_size"].default
    for key in inapplicable_keys(values) - inapplicable_keys(base) - changes.keys():
        values[key] = OPTIONS[key].default
    return build_config(values, checks=[*checks, lambda config: check_inapplicable(config, changes)])


def check_file(config: RunConfig) -> list[Problem]:
    """Checks a file: if written by this program it has all keys, those without effect at their defaults."""
    values = to_mapping(config)
    changed = [key for key, option in OPTIONS.items() if values[key] not in (option.default, _FORMER_DEFAULTS.get(key))]
    return check_inapplicable(config, changed)


def _problem(key: str, values: Mapping[str, Value]) -> Problem:
    option = OPTIONS[key]
    if not takes(backend := str(values["backend"]), key) and not BACKENDS[backend].builtin:
        message = f"would have no effect with backend {backend}: what a script takes are its arguments, after --."
        return Problem(key, f"{format_value(values[key])} {message}", also=("backend",))
    other, allowed = option.only or ("model", ())
    if option.only is None or option.applies(values):
        other, allowed = "model", _WITH_MODELS[key]
    value, goes_with = format_value(values[key]), " or ".join(allowed)
    message = f"{value} would have no effect with {other} {values[other]}: it applies only to {goes_with}"
    message += f"; {option.why}." if option.why else "."
    return Problem(key, message, also=(other,))
