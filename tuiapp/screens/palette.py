"""The palette: every action that works on the screen, the usual ones first, with their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.dom import DOMNode
from textual.fuzzy import Matcher
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tuiapp.screens.dialog import Picker, moving_keys

KEPT = {"Theme", "Maximize", "Minimize", "Screenshot"}
"""The commands of Textual that are listed: those which no key of ours has."""

WIDTH = 64
"""Cells of the box."""

FRAME_CELLS = 6
"""Cells of the border, padding and scroll bar."""


class Palette(Picker[None]):
    """Lists actions with their keys, searched by name; runs the chosen one after closing.

    Textual's own takes Enter for the list of an earlier search while a new one is under way.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "dismiss", "Close", id="palette.close"),
        *moving_keys("palette", "action"),
    ]

    def __init__(self, commands: Iterable[SystemCommand]) -> None:
        super().__init__("Actions", Input(placeholder="Search", id="search", compact=True))
        self._commands = list(commands)

    def on_resize(self) -> None:
        self.fill()

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        room = min(WIDTH, self.app.size.width) - FRAME_CELLS
        matcher = Matcher(search, match_style=Style(bold=True, underline=True))
        scored: list[tuple[bool, float, Option]] = []
        for index, (name, key, _, _) in enumerate(self._commands):
            score = matcher.match(name) if search else 1.0
            if score > 0:
                gap = " " * max(1, room - cell_len(name) - cell_len(key))
                line = Content.assemble(matcher.highlight(name) if search else name, gap, key)
                begins = name.casefold().startswith(search.casefold())
                scored.append((not begins, -score, Option(line, id=str(index))))
        options = [option for *_, option in sorted(scored, key=lambda row: row[:2])]
        return (options, 0) if options else ([Option("No action has this name.", disabled=True)], None)

    @on(OptionList.OptionSelected)
    def _run(self, event: OptionList.OptionSelected) -> None:
        command = self._commands[int(event.option_id or 0)].callback
        self.dismiss()
        self.app.call_later(command)


def system_commands(app: App[Any], screen: Screen[Any], textuals: Iterable[SystemCommand]) -> Iterator[SystemCommand]:
    """Yields all that has a key on the screen, the footer's first, and Textual's commands."""
    listed = {"command_palette"}
    # Stable: what the footer does not have keeps its order, the program's own before the screen's.
    bound = sorted(own_bindings(screen), key=lambda pair: (not pair[1].show, not isinstance(pair[0], App)))
    for node, binding in bound:
        # Widgets' keys only move a cursor or the focus unless they have a name; two keys may do the same.
        named, action = isinstance(node, App | Screen) or binding.id, binding.action.removeprefix("app.")
        if named and action not in listed:
            listed.add(action)
            title = binding.tooltip or binding.description
            yield SystemCommand(title, app.get_key_display(binding), partial(app.run_action, binding.action, node))
    for title, _, command, _ in textuals:
        if title in KEPT:
            yield SystemCommand(title, "", command)


def own_bindings(screen: Screen[Any]) -> Iterator[tuple[DOMNode, Binding]]:
    """Yields our keys that work on a screen now, with their nodes: Textual's widgets have many that only scroll."""
    for node, binding, enabled, _ in screen.active_bindings.values():
        if enabled and binding.description and not binding.system and binding.action in _own_actions(type(node)):
            yield node, binding


@cache
def _own_actions(kind: type[DOMNode]) -> frozenset[str]:
    """Returns the actions of the bindings that our own classes declare."""
    ours = [ancestor for ancestor in kind.__mro__ if ancestor.__module__.startswith("tuiapp.")]
    declared = [binding for owner in ours for binding in Binding.make_bindings(owner.__dict__.get("BINDINGS", ()))]
    return frozenset(binding.action for binding in declared)
