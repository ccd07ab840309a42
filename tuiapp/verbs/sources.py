"""A command's configuration: a preset or a file, with keys changed by `--set`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from trainers.config.files import read_limited
from trainers.config.options import ConfigError, Problem
from trainers.config.relevance import check_file, check_idle, inapplicable_keys
from trainers.config.run_config import (
    MAX_FILE_BYTES,
    OPTIONS,
    Check,
    RunConfig,
    build_config,
    get_option,
    parse_toml,
    to_toml_values,
)
from trainers.contract.rundir import RunDir, default_runs_dir
from trainers.contract.summary import read_config
from trainers.launch import LaunchError
from tuiapp.library.presets import load_config


def runs_dir(options: Namespace) -> Path:
    """Returns the command's directory of runs."""
    return options.runs_dir or default_runs_dir()


def read_source(source: str | None, settings: Sequence[str], checks: Sequence[Check] = ()) -> RunConfig:
    """Builds a configuration from the command line; raises `ConfigError` or `PresetError`.

    Args:
        source: A preset's name, or the path of a TOML file (with a `/` or ending in .toml); None for the defaults.
        settings: `KEY=VALUE` each.
        checks: As of `build_config`.
    """
    base = RunConfig() if source is None else _read_file(source) if _is_path(source) else load_config(source)
    return _with_changes(to_toml_values(base), _changes(settings), checks)


def read_like(
    run: RunDir, settings: Sequence[str], checks: Sequence[Check] = (), purpose: str = "resumed"
) -> RunConfig:
    """Returns a run's configuration with keys changed; raises `ConfigError`, or `LaunchError` without a run.toml."""
    try:
        values = to_toml_values(read_config(run))
    except OSError as error:
        raise LaunchError(f"{run.run_id} cannot be {purpose}: cannot read {run.config}: {error.strerror}.") from error
    changes = _changes(settings)
    if changes.keys() & {"platform", "devices"}:
        # Its run.toml names the GPUs that it had: choose new ones.
        values["device_ids"] = []
    return _with_changes(values, changes, checks)


def _with_changes(base: dict[str, object], changes: dict[str, object], checks: Sequence[Check]) -> RunConfig:
    values = {**base, **changes}
    for key in inapplicable_keys(values) - inapplicable_keys(base) - changes.keys():
        values[key] = OPTIONS[key].default
    return build_config(values, checks=[*checks, lambda config: check_idle(config, changes)])


def _changes(settings: Sequence[str]) -> dict[str, object]:
    changes, problems = dict[str, object](), list[Problem]()
    for setting in settings:
        try:
            key, value = _parse(setting)
        except ConfigError as error:
            problems += error.problems
        else:
            changes[key] = value
    if problems:
        raise ConfigError(problems)
    return changes


def _parse(setting: str) -> tuple[str, object]:
    key, equals, text = setting.partition("=")
    option = get_option(key.strip())
    if not equals:
        raise ConfigError([Problem(option.key, f"no value given; write --set {option.key}=VALUE.")])
    return option.key, option.parse(text)


def _is_path(source: str) -> bool:
    return os.sep in source or source.endswith(".toml")


def _read_file(source: str) -> RunConfig:
    # A path given by the user may be a link; a file in the presets' directory may not.
    path = Path(os.path.realpath(os.path.expanduser(source)))
    try:
        config, _ = parse_toml(read_limited(path, MAX_FILE_BYTES), source, also=frozenset({"description"}))
        if problems := check_file(config):
            raise ConfigError(problems, source)
        return config
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError([Problem("", f"cannot be read: {error.strerror or error}.")], source) from None
    except ValueError as error:
        raise ConfigError([Problem("", f"{error}.")], source) from None
