"""What a command names: runs, and a configuration, which is a preset or a file with keys changed by `--set`."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tuiapp.library.find import find_run, weights_path
from tuiapp.library.presets import PresetError, load_config
from tuiapp.trainers.config.files import read_limited
from tuiapp.trainers.config.options import ConfigError, Problem, shown
from tuiapp.trainers.config.relevance import check_file, with_changes
from tuiapp.trainers.config.run_config import (
    MAX_FILE_BYTES,
    Check,
    RunConfig,
    find_option,
    get_option,
    parse_toml,
    to_mapping,
)
from tuiapp.trainers.config.script_syntax import MODULE
from tuiapp.trainers.contract.rundir import RunDir, default_runs_dir
from tuiapp.trainers.launch import LaunchError
from tuiapp.trainers.state.status import read_config
from tuiapp.verbs.output import UsageError


def runs_dir(options: Namespace) -> Path:
    """Returns the command's directory of runs."""
    return options.runs_dir or default_runs_dir()


def add_launcher(options: Namespace) -> None:
    """Adds what --launcher and --slurm say to the changes of --set."""
    if options.slurm is not None:
        options.settings += ["launcher=slurm", f"slurm={options.slurm}"]
    elif options.launcher is not None:
        options.settings.append(f"launcher={options.launcher}")


def place_weights(options: Namespace) -> None:
    """Replaces the runs that values of `init_from` name by their directories; raises UnknownRunError."""
    for kind in ("settings", "grid", "search"):
        settings = getattr(options, kind, None) or []
        for index, setting in enumerate(settings):
            key, equals, text = setting.partition("=")
            if key.strip() == "init_from" and equals:
                pieces = text.split(",") if kind != "settings" else [text]
                paths = [weights_path(piece.strip(), runs_dir(options)) for piece in pieces]
                settings[index] = f"init_from={','.join(paths)}"


def run_of(options: Namespace) -> RunDir:
    """Returns the run that the command names."""
    return find_run(options.run, runs_dir(options))


def runs_of(options: Namespace) -> list[RunDir]:
    """Returns the runs that the command names, each once."""
    # What filters read takes longer to import than most commands take.
    from tuiapp.actions.action import select

    return select(options.runs, runs_dir(options))


def read_source(
    source: str | None, settings: Sequence[str], checks: Sequence[Check] = (), arguments: Sequence[str] | None = None
) -> RunConfig:
    """Builds a configuration from the command line; raises `ConfigError` or `PresetError`.

    Args:
        source: A preset's name, the path of a TOML file (with a `/` or ending in .toml) or of a script (ending in .py),
            or `module:` and a module's name; None for the defaults.
        settings: `KEY=VALUE` each.
        checks: As of `build_config`.
        arguments: A script's, which replace those of its configuration; None to keep them.
    """
    base, script = RunConfig(), dict[str, object]()
    if source is not None and (source.endswith(".py") or source.startswith(MODULE)):
        script = {"backend": "script", "script": source}
    elif source is not None:
        if "=" in source and not _is_path(source) and (setting := as_setting(source)):
            raise PresetError(f"{shown(source)} is no preset. To set a configuration key: {setting}")
        base = _read_file(source) if _is_path(source) else load_config(source)
    return with_changes({**to_mapping(base)}, {**script, **_changes(settings, arguments)}, checks)


def read_named(options: Namespace, checks: Sequence[Check] = (), purpose: str = "used for a new run") -> RunConfig:
    """Builds the configuration that a command names, by its source or as that of the run of --like."""
    if options.like is None:
        return read_source(options.source, options.settings, checks, options.arguments)
    if options.source is not None:
        raise UsageError(f"--like uses a run's configuration: omit {options.source!r} or --like.")
    run = find_run(options.like, runs_dir(options))
    return read_like(run, options.settings, checks, purpose, options.arguments)


def read_like(
    run: RunDir,
    settings: Sequence[str],
    checks: Sequence[Check] = (),
    purpose: str = "resumed",
    arguments: Sequence[str] | None = None,
) -> RunConfig:
    """Returns a run's configuration with keys changed; raises `ConfigError`, or `LaunchError` without a run.toml."""
    try:
        values: dict[str, object] = {**to_mapping(read_config(run))}
    except OSError as error:
        raise LaunchError(f"{run.run_id} cannot be {purpose}: cannot read {run.config}: {error.strerror}.") from error
    changes = _changes(settings, arguments)
    if changes.keys() & {"platform", "devices"}:
        # Its run.toml names the GPUs that it had: choose new ones.
        values["device_ids"] = []
    return with_changes(values, changes, checks)


def _changes(settings: Sequence[str], arguments: Sequence[str] | None) -> dict[str, object]:
    """Returns what `--set` changes, and a script's arguments: none are no change, unless `--` was written."""
    changes, problems = dict[str, object](), list[Problem]()
    if arguments is not None:
        changes["arguments"] = shlex.join(arguments)
    for setting in settings:
        key, equals, text = setting.partition("=")
        try:
            option = get_option(key.strip())
            if not equals:
                raise ConfigError([Problem(option.key, f"no value given; write --set {option.key}=VALUE.")])
            changes[option.key] = option.parse(text)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return changes


def as_setting(word: str, following: str = "") -> str:
    """Returns how `--set` has what was given as `--KEY VALUE`, `--KEY=VALUE` or `KEY=VALUE`; "" if no key is meant."""
    name, equals, text = word.lstrip("-").partition("=")
    if not equals and not word.startswith("-"):
        return ""
    option, same = find_option(name.replace("-", "_"))
    if option is None:
        return ""
    text = text if equals else following
    try:
        option.parse(text)
    except ConfigError:
        same = False
    # What only resembles a key may have other values.
    return shlex.join(["--set", f"{option.key}={text if same and text else 'VALUE'}"])


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
    except ConfigError as error:
        if source.endswith(".toml"):
            raise
        hint = f"to run it as a Python script: tuiapp run --set backend=script --set script={shlex.quote(source)}"
        raise ConfigError([*error.problems, Problem("", hint)], source) from None
    except OSError as error:
        raise ConfigError([Problem("", f"cannot be read: {error.strerror or error}.")], source) from None
    except ValueError as error:
        raise ConfigError([Problem("", f"{error}.")], source) from None
