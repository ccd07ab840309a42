"""The user's settings: how the dashboard looks and is steered, and who is told when a run ends.

They lie in `tuiapp/config.toml` in the user's configuration directory. Whatever is wrong with that file is said in
words, and what can be read of it is used: no setting keeps a run from being started or the dashboard from opening.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from platformdirs import user_config_path

from trainers.config.files import make_private, read_limited, why_not_trusted, write_atomically
from trainers.config.options import ConfigError, Option, Problem, shown, suggest

MAX_FILE_BYTES = 64 * 1024
"""No settings are longer; a longer file is refused unread."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has set, or the defaults. Each field is one key of the file."""

    theme: str = ""
    """The colours: one of Textual's themes, as the palette names them; "" for Textual's own choice."""
    unicode: str = "auto"
    """Whether bars, curves and frames may be drawn with characters beyond ASCII; auto looks at the terminal."""
    bell: bool = True
    """Whether the terminal's bell rings when a run that this terminal watches has ended."""
    notification: str = "osc9"
    """How the terminal is asked to show a notice of the same: osc9, osc777 or off."""
    command: tuple[str, ...] = ()
    """What is run when a run has ended, wherever it was started from: a program and its arguments."""
    webhook: str = ""
    """Where a small JSON is sent then; may hold a secret."""
    keys: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What a key does → the keys that do it, comma-separated, as `tuiapp settings keys` lists them."""


OPTIONS = {
    option.key: option
    for option in (
        Option("", "Theme", "", key="theme"),
        Option("", "Unicode", "", choices=("auto", "on", "off"), key="unicode"),
        Option("", "Bell", "", key="bell", kind="bool"),
        Option("", "Notification", "", choices=("osc9", "osc777", "off"), key="notification"),
        Option("", "Command", "", key="command", kind="list"),
        Option("", "Webhook", "", key="webhook"),
    )
}
"""Every key of the file but the table `keys`."""

TOLD_BY = ("command", "webhook")
"""The keys that say how a run's end is told."""


def settings_path() -> Path:
    """The file; it need not exist."""
    return user_config_path("tuiapp") / "config.toml"


def read_settings() -> tuple[Settings, list[Problem]]:
    """What the user has set, and what is wrong with it; a key with a problem stands at its default.

    A file that others may change names neither a command nor a webhook: they would have them with the user's rights.
    """
    path = settings_path()
    try:
        # The file of a setup kept under version control is often a link.
        table = tomllib.loads(read_limited(path.resolve(), MAX_FILE_BYTES))
        why = why_not_trusted(path)
    except FileNotFoundError:
        return Settings(), []
    except tomllib.TOMLDecodeError as error:
        return Settings(), [Problem("", f"is no TOML: {error}")]
    except OSError as error:
        return Settings(), [Problem("", f"cannot be read: {error.strerror or error}")]
    except (ValueError, RecursionError, RuntimeError) as error:  # not UTF-8, nested too deeply, a loop of links
        return Settings(), [Problem("", f"cannot be read: {error}")]
    not_used = [Problem(key, f"is not used: {why}") for key in TOLD_BY if why and key in table]
    settings, problems = check_settings({key: value for key, value in table.items() if not why or key not in TOLD_BY})
    return settings, [*not_used, *problems]


def check_settings(table: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """Settings from TOML's values, and what is wrong with them."""
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
    if key not in OPTIONS:
        known = [*OPTIONS, "keys"]
        hint = suggest(key, known) or f" The keys are: {', '.join(known)}."
        raise ConfigError([Problem(shown(key), f"there is no such setting.{hint}")])
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


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    if not right or not url.isascii() or not url.isprintable() or " " in url:
        # The address may be a secret: it is not quoted.
        raise ConfigError(
            [Problem("webhook", "is no address; it must begin with https:// or http:// and name a host.")]
        )


def save_setting(key: str, value: str | bool) -> Path:
    """Write one setting into the user's file; its other lines and comments stay.

    Raises:
        OSError: it cannot be read or written.
        ValueError: the file is no TOML; it is left as it is.
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
        raise ValueError(f"is no TOML: {error}") from None
    document[key] = value
    make_private(path.parent)
    write_atomically(path, tomlkit.dumps(document).encode())
    return path


def host_of(url: str) -> str:
    """What may be shown of an address that may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" if parts.hostname else ""


def is_open_to_others(path: Path) -> bool:
    """Whether somebody else on this machine may read a file."""
    try:
        return bool(os.stat(path).st_mode & 0o044)
    except OSError:
        return False
