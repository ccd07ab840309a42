"""What the palette offers: each thing once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

KEPT = {"Theme", "Maximize", "Minimize", "Screenshot"}
"""Of Textual's own commands those that no key of ours does."""


def system_commands(app: App[Any], screen: Screen[Any], textuals: Iterable[SystemCommand]) -> Iterator[SystemCommand]:
    """Textual's commands, and all that has a key on the screen.

    Args:
        app: The app.
        screen: The screen that the palette lies over.
        textuals: What Textual offers by itself.
    """
    yield from (command for command in textuals if command.title in KEPT)
    said: set[str] = set()
    for node, binding in own_bindings(screen):
        # Those of widgets move a cursor or the focus, but for what has a name of its own. Two keys may do the same,
        # and a key of the app's may be named again for the footer.
        if (isinstance(node, App | Screen) or binding.id) and binding.description not in said:
            said.add(binding.description)
            action = partial(app.run_action, binding.action, screen)
            title = binding.tooltip or binding.description
            yield SystemCommand(title, f"Key: {app.get_key_display(binding)}", action)


def own_bindings(screen: Screen[Any]) -> Iterator[tuple[DOMNode, Binding]]:
    """The keys of ours that work on a screen now, and where they do: Textual's widgets have many that only scroll."""
    for node, binding, enabled, _ in screen.active_bindings.values():
        if enabled and binding.description and not binding.system and binding.action in _own_actions(type(node)):
            yield node, binding


@cache
def _own_actions(kind: type[DOMNode]) -> frozenset[str]:
    """What the keys do that a class of ours declares, or one that it is made of."""
    ours = [one for one in kind.__mro__ if one.__module__.startswith("tuiapp.")]
    declared = [binding for one in ours for binding in Binding.make_bindings(one.__dict__.get("BINDINGS", ()))]
    return frozenset(binding.action for binding in declared)
