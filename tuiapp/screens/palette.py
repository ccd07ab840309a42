"""The palette's commands: each one once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

KEPT = {"Theme", "Maximize", "Minimize", "Screenshot"}
"""Textual's commands that no key of ours has."""


def system_commands(app: App[Any], screen: Screen[Any], textuals: Iterable[SystemCommand]) -> Iterator[SystemCommand]:
    """Yields Textual's commands and all that has a key on the screen."""
    yield from (command for command in textuals if command.title in KEPT)
    said: set[str] = set()
    for node, binding in own_bindings(screen):
        # Widgets' keys only move a cursor or the focus unless they have a name. Two keys may do the same,
        # and a key of the app may be renamed for the footer.
        named = isinstance(node, App | Screen) or binding.id
        if named and binding.action != "command_palette" and binding.description not in said:
            said.add(binding.description)
            action = partial(app.run_action, binding.action, screen)
            title = binding.tooltip or binding.description
            yield SystemCommand(title, f"Key: {app.get_key_display(binding)}", action)


def own_bindings(screen: Screen[Any]) -> Iterator[tuple[DOMNode, Binding]]:
    """Yields our keys that work on a screen now, with their nodes: Textual's widgets have many that only scroll."""
    for node, binding, enabled, _ in screen.active_bindings.values():
        if enabled and binding.description and not binding.system and binding.action in _own_actions(type(node)):
            yield node, binding


@cache
def _own_actions(kind: type[DOMNode]) -> frozenset[str]:
    """Returns the actions of the bindings that our own classes declare."""
    ours = [one for one in kind.__mro__ if one.__module__.startswith("tuiapp.")]
    declared = [binding for one in ours for binding in Binding.make_bindings(one.__dict__.get("BINDINGS", ()))]
    return frozenset(binding.action for binding in declared)
