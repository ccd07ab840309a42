"""Applies the user's settings to the dashboard: theme, keys, characters; and reports problems in the file."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual._keyboard_protocol import FUNCTIONAL_KEYS
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character
from textual.theme import BUILTIN_THEMES

from tuiapp.terminal.ascii_filter import AsciiFilter, wants_ascii
from tuiapp.trainers.config.options import Problem, shown, suggest
from tuiapp.trainers.config.settings import Settings, save_setting, settings_path
from tuiapp.trainers.state.text import sanitize

PROBLEM_S = 20.0  # of a notice about the file on the screen
UNREADABLE_THEMES = frozenset({"ansi-dark", "ansi-light"})
"""The terminal's own 16 colours have no shades: the alert strip and the charts' axes would be invisible."""


@dataclass(frozen=True, slots=True)
class Bound:
    name: str
    keys: str  # default
    does: str


class Preferences:
    def __init__(self, app: App[Any], settings: Settings, problems: Sequence[Problem]) -> None:
        self._app, self.settings = app, settings
        self._problems = [*problems, *check_theme(settings.theme)]
        if settings.theme in app.available_themes:
            app.theme = settings.theme
        self.filters = [AsciiFilter()] if wants_ascii(settings.unicode, os.environ) else []

    def begin(self) -> None:
        app = self._app
        if self.settings.keys:
            app.set_keymap({name: keys for name, keys in self.settings.keys.items() if not check_key_names(name, keys)})
            # It imports every screen, which must not delay the first picture.
            app.set_timer(0.5, lambda: self._report(check_keys(self.settings.keys)))
        app.call_after_refresh(self._report, self._problems)

    def _report(self, problems: Sequence[Problem]) -> None:
        if problems:
            text = "\n".join(sanitize(str(problem)) for problem in problems)
            self._app.notify(
                f"{text}\nThe file: {sanitize(str(settings_path()))}",
                title="Some settings are not used",
                severity="warning",
                timeout=PROBLEM_S,
                markup=False,
            )

    def save_theme(self, name: str) -> None:
        try:
            save_setting("theme", name)
        except (OSError, ValueError, RuntimeError) as error:
            # The file cannot be written, or is no TOML, nested too deeply or a loop of links.
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = sanitize(f"Cannot write {settings_path()}: {why}.")
            self._app.notify(text, title="The theme was not saved", severity="warning", markup=False)


def bindings() -> Iterator[Bound]:
    """Yields all key bindings of the dashboard."""
    by_name: dict[str, list[Binding]] = {}
    for node in nodes():
        for binding in Binding.make_bindings(node.__dict__.get("BINDINGS", ())):
            by_name.setdefault(binding.id or "", []).append(binding)
    for name, bound in sorted(by_name.items()):
        keys = dict.fromkeys(key for binding in bound for key in binding.key.split(","))
        yield Bound(name, ",".join(keys), bound[0].description)


def nodes() -> list[type[DOMNode]]:
    """Returns the classes of the dashboard: the app, which must be imported, and its screens and widgets."""
    import tuiapp

    for package in ("screens", "widgets"):
        path = [f"{directory}/{package}" for directory in tuiapp.__path__]
        for module in pkgutil.iter_modules(path, f"tuiapp.{package}."):
            importlib.import_module(module.name)
    return sorted(_below(DOMNode), key=lambda node: node.__qualname__)


def _below(root: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for node in root.__subclasses__():
        if node.__module__.startswith("tuiapp."):
            yield node
        yield from _below(node)


def check_keys(keys: Mapping[str, str]) -> list[Problem]:
    """Returns the problems of the table `keys`: unknown bindings and keys. Imports every screen unless it is empty."""
    if not keys:
        return []
    names = {bound.name for bound in bindings()}
    unknown = [Problem(f"keys.{name}", f"unknown action.{suggest(name, names)}") for name in keys if name not in names]
    return [*unknown, *(problem for name, key in keys.items() for problem in check_key_names(name, key))]


def check_key_names(name: str, keys: str) -> list[Problem]:
    """Returns a problem for each of these keys that does not exist."""
    problems = [key_problem(key.strip()) for key in keys.split(",")]
    return [Problem(f"keys.{name}", problem) for problem in problems if problem]


def check_theme(theme: str) -> list[Problem]:
    """Returns a problem if there is no theme of this name."""
    themes = BUILTIN_THEMES.keys() - UNREADABLE_THEMES
    if not theme or theme in themes:
        return []
    names = ", ".join(sorted(themes))
    return [Problem("theme", f"{theme!r} is not allowed; it must be one of {names}.{suggest(theme, themes)}")]


MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
"""The modifiers of a key, in Textual's order."""

ALLOWED = 'keys, comma-separated, as "f9", "ctrl+k", "alt+left", "question_mark" or "?"'


def key_problem(key: str) -> str:
    """Returns why no key has this name, or ""."""
    *modifiers, bare = key.split("+") if len(key) > 1 else [key]
    mended = "+".join([*(modifier for modifier in MODIFIERS if modifier in modifiers), bare])
    if unknown := [modifier for modifier in modifiers if modifier not in MODIFIERS]:
        hint = suggest(unknown[0], MODIFIERS) or f" Allowed before a +: {', '.join(MODIFIERS)}."
    elif not _is_key(bare):
        hint = suggest(bare, _named())
    elif mended != key:
        hint = f" Did you mean {mended!r}?"
    elif modifiers == ["shift"] and len(bare) == 1:
        # A terminal sends the letter itself.
        hint = f" Did you mean {bare.upper()!r}?"
    else:
        return ""
    return f"{shown(key)} is not allowed; it must be {ALLOWED}.{hint}"


def _is_key(bare: str) -> bool:
    character = bare if len(bare) == 1 else key_to_character(bare) or "\n"
    return bare in _named() or character.isprintable()


def _named() -> set[str]:
    """Returns keys that type no character, and characters not named as in Unicode."""
    pressed = {key.value.rpartition("+")[2] for key in Keys if "<" not in key.value}
    return pressed.union(FUNCTIONAL_KEYS.values(), KEY_NAME_REPLACEMENTS.values())
