"""The user's settings: the dashboard's look and keys, the notices of a run's end, and the backends' interpreters.

They are in `tuiapp/config.toml` in the user's configuration directory. Errors in that file are reported, and the rest
is used: no setting keeps a run from starting or the dashboard from opening.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import make_private, read_limited, user_config, why_not_trusted, write_atomically
from tuiapp.trainers.config.options import ConfigError, Option, Problem, declared, shown, suggest

MAX_FILE_BYTES = 64 * 1024
"""No settings are longer; a longer file is refused unread."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings, or the defaults. Each field is one key of the file."""

    theme: Annotated[str, Option()] = ""
    """One of Textual's themes, as the palette names them; "" for Textual's default."""
    unicode: Annotated[str, Option(choices=("auto", "on", "off"))] = "auto"
    """Whether bars, curves and frames may use characters beyond ASCII; auto checks the terminal."""
    bell: Annotated[bool, Option()] = True
    """Whether the terminal's bell rings at the end of a run that it watches."""
    notification: Annotated[str, Option(choices=("osc9", "osc777", "off"))] = "osc9"
    """How the terminal is asked to show a notice of that: osc9, osc777 or off."""
    command: Annotated[tuple[str, ...], Option()] = ()
    """Run at the end of a run, wherever it was started: a program and its arguments."""
    webhook: Annotated[str, Option()] = ""
    """Receives a small JSON then; may hold a secret."""
    queue_cpu_slots: Annotated[int, Option(minimum=0, maximum=1024)] = 0
    """How many runs without GPUs the queue lets run at a time; 0: one for four cores."""
    idle_memory: Annotated[int, Option(minimum=0, maximum=100)] = 10
    """Percent of a GPU's memory above which it counts as in use: for a launch and for the queue."""
    idle_load: Annotated[int, Option(minimum=0, maximum=100)] = 10
    """Percent of utilization from which on a GPU counts as in use."""
    large_journal_mib: Annotated[int, Option(minimum=1, maximum=2**30)] = 1024
    """Above so many MiB a run's journal is called large."""
    environments: Mapping[str, str] = msgspec.field(default_factory=dict)
    """A backend, or a framework for all of its backends → the interpreter of the ranks."""
    keys: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Action → the keys that trigger it, comma-separated, as `tuiapp settings keys` lists them."""


OPTIONS = declared(Settings)
"""Every key of the file but the tables."""

TABLES = ("environments", "keys")

EXECUTED = ("command", "webhook", "environments")
"""What runs with the user's rights, or is told of the runs."""


def settings_path() -> Path:
    """Returns the file; it may be missing."""
    return user_config() / "config.toml"


def read_settings() -> tuple[Settings, list[Problem]]:
    """Reads the user's settings, and their problems; a key with a problem gets its default.

    A file that others may change names no command, webhook or interpreter: they would run with the user's rights.
    """
    path = settings_path()
    try:
        # The file of a setup kept under version control is often a link.
        table = tomllib.loads(read_limited(path.resolve(), MAX_FILE_BYTES))
        why = why_not_trusted(path)
    except FileNotFoundError:
        return Settings(), []
    except tomllib.TOMLDecodeError as error:
        return Settings(), [Problem("", f"is not valid TOML: {error}")]
    except (OSError, ValueError, RecursionError, RuntimeError) as error:
        # Not to be opened, not UTF-8, nested too deeply, a loop of links.
        return Settings(), [Problem("", f"cannot be read: {getattr(error, 'strerror', None) or error}")]
    not_used = [Problem(key, f"is ignored: {why}") for key in EXECUTED if why and key in table]
    settings, problems = check_settings({key: value for key, value in table.items() if not why or key not in EXECUTED})
    return settings, [*not_used, *problems]


_read: tuple[tuple[Path, int], Settings] | None = None
"""The settings that `current_settings` returned last, and the state of the file then."""


def current_settings() -> Settings:
    """Returns what `read_settings` does, without the problems; the file is read again when it has changed."""
    global _read
    path = settings_path()
    try:
        state = path, path.stat().st_mtime_ns
    except OSError:
        state = path, 0
    if _read is None or _read[0] != state:
        _read = state, read_settings()[0]
    return _read[1]


def check_settings(table: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """Returns the settings from TOML's values, and their problems."""
    good: dict[str, object] = {}
    problems: list[Problem] = []
    for key, value in table.items():
        try:
            good[key] = _check(key, value)
        except ConfigError as error:
            problems += error.problems
    return msgspec.convert(good, Settings), problems


def _check(key: str, value: object) -> object:
    if key == "keys":
        return _check_keys(value)
    if key == "environments":
        return _check_environments(value)
    if key not in OPTIONS:
        keys = [*OPTIONS, *TABLES]
        hint = suggest(key, keys) or f" The keys are: {', '.join(keys)}."
        raise ConfigError([Problem(shown(key), f"unknown setting.{hint}")])
    checked = OPTIONS[key].check(value)
    if key == "webhook" and checked:
        _check_url(str(checked))
    return checked


def _check_keys(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError([Problem("keys", f"{shown(value)} is not allowed; it must be a table, as [keys].")])
    for name, keys in value.items():
        if not isinstance(keys, str) or not all(key.strip() for key in keys.split(",")):
            message = f'{shown(keys)} is not allowed; it must be keys, comma-separated, as "f9,ctrl+g".'
            raise ConfigError([Problem(f"keys.{name}", message)])
    return value


def _check_environments(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError([Problem("environments", f"{shown(value)} is not allowed; it must be a table.")])
    names = list(
        dict.fromkeys(name for backend in BACKENDS.values() for name in (backend.name, backend.framework) if name)
    )
    problems = []
    for name, python in value.items():
        if name not in names:
            hint = suggest(name, names) or f" It must be one of {', '.join(names)}."
            problems.append(Problem(f"environments.{shown(name)}", f"there is no such backend or framework.{hint}"))
        elif not isinstance(python, str) or not python.strip() or not python.isprintable():
            message = f'{shown(python)} is not allowed; it must be an interpreter, as "~/venvs/jax/bin/python".'
            problems.append(Problem(f"environments.{name}", message))
    if problems:
        raise ConfigError(problems)
    return value


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    if not right or not url.isascii() or not url.isprintable() or " " in url:
        # The address may be a secret: it is not quoted.
        raise ConfigError(
            [Problem("webhook", "is not a web address; it must begin with https:// or http:// and name a host.")]
        )


def save_setting(key: str, value: str | bool) -> Path:
    """Writes one setting into the user's file; its other lines and comments stay.

    Raises OSError if it cannot be read or written, ValueError if it is no TOML, and leaves it as it is.
    """
    # Only writing needs it; the dashboard's first picture does not.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = settings_path().resolve()
    try:
        document = tomlkit.parse(read_limited(path, MAX_FILE_BYTES))
    except FileNotFoundError:
        document = tomlkit.document()
    except TOMLKitError as error:
        raise ValueError(f"is not valid TOML: {error}") from None
    document[key] = value
    make_private(path.parent)
    write_atomically(path, tomlkit.dumps(document).encode())
    return path


def host_of(url: str) -> str:
    """Returns the part of an address, which may be a secret, that may be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" if parts.hostname else ""


def is_open_to_others(path: Path) -> bool:
    """Returns whether other users of this machine may read a file."""
    try:
        return bool(os.stat(path).st_mode & 0o044)
    except OSError:
        return False
