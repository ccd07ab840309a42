"""The keys that work now: searched by name in the palette, listed under headings, and why the others do nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from rich.cells import cell_len
from textual import actions, events, on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.fuzzy import Matcher
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tuiapp.screens.dialog import Dialog, Picker, moving_keys
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.trainers.state.text import fit

KEPT = {"Theme", "Maximize", "Minimize", "Screenshot"}
"""The commands of Textual that are listed: those which no key of ours has."""

PALETTE_CELLS = 64
"""Cells of the palette's box."""

PALETTE_FRAME_CELLS = 6
"""Cells of its border, padding and scroll bar."""


class Palette(Picker[None]):
    """Lists actions with their keys, searched by name; runs the chosen one after closing.

    Textual's own palette takes Enter for the list of an earlier search while a new one is under way.
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
        room = min(PALETTE_CELLS, self.app.size.width) - PALETTE_FRAME_CELLS
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


KEY_CELLS, WORDS_CELLS = 11, 23
"""Cells of a key and of its description."""

FRAME_CELLS = 7
"""Cells of the list's border, padding and scroll bar."""


class KeysHelp(Dialog[None]):
    """Lists the footer's keys on the screen beneath, at another key all that work there; escape closes it.

    A screen's `KEY_GROUPS` has headings, and the actions beneath each; the others stand under the screen's name.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss(None)", "Close", id="help.close", show=False),
        Binding("space", "show_all", "All keys", id="help.all", show=False),
        Binding("f1", "app.manual", "Help", tooltip="Open the handbook", id="app.manual", show=False),
    ]

    def __init__(self, beneath: Screen[Any]) -> None:
        super().__init__()
        self._beneath = beneath
        self._shows_all = False

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog") as dialog:
            dialog.border_title = Content("Keys")
            dialog.border_subtitle = Content("space: all keys · esc closes · ^p finds by name · f1 handbook")
            yield Static(self._text(self.app.size.width), id="keys")

    def on_mount(self) -> None:
        self.query_one("#dialog").focus()

    def action_show_all(self) -> None:
        self._shows_all = not self._shows_all
        other = "the first keys" if self._shows_all else "all keys"
        self.query_one("#dialog").border_subtitle = Content(
            f"space: {other} · esc closes · ^p finds by name · f1 handbook"
        )
        self.query_one("#keys", Static).update(self._text(self.app.size.width))

    def on_resize(self, event: events.Resize) -> None:
        self.query_one("#keys", Static).update(self._text(event.size.width))

    def _text(self, width: int) -> Content:
        columns = max(1, min(4, (int(width * 0.95) - FRAME_CELLS) // (KEY_CELLS + WORDS_CELLS)))
        grouped = _grouped(self.app, self._beneath, hidden=self._shows_all)
        return Content("\n\n").join(_group(title, entries, columns) for title, entries in grouped)


def _grouped(app: App[Any], screen: Screen[Any], *, hidden: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the keys and what they do, by heading; `hidden` ones, which the footer does not show, too."""
    groups: dict[tuple[DOMNode, str], dict[str, tuple[list[str], str]]] = {}
    headings = {action: heading for heading, listed in getattr(screen, "KEY_GROUPS", {}).items() for action in listed}
    bound = sorted(own_bindings(screen), key=lambda pair: _place(pair[0]))
    for node, binding in bound:
        if not (binding.show or hidden):
            continue
        action = binding.action.removeprefix("app.")
        # The screen's names for the program's footer keys replace the program's.
        heading = headings.get(action.partition("(")[0], "") if node in (screen, app) else ""
        replacing = groups.get((screen, heading), {}) if isinstance(node, App) else {}
        group = replacing if action in replacing else groups.setdefault((node, heading if node is screen else ""), {})
        keys, _ = group.setdefault(action, ([], binding.tooltip or binding.description))
        key = app.get_key_display(binding)
        if key not in keys:
            keys.append(key)
    order = ["", *dict.fromkeys(headings.values())]
    found_at = sorted(groups, key=lambda pair: (_place(pair[0]), order.index(pair[1])))
    return [
        (heading or _title(node), [(" ".join(keys), does) for keys, does in groups[node, heading].values()])
        for node, heading in found_at
    ]


def _place(node: DOMNode) -> int:
    return 2 if isinstance(node, App) else 0 if isinstance(node, Screen) else 1


def _title(node: DOMNode) -> str:
    if isinstance(node, App):
        return "Everywhere"
    if isinstance(node, Screen):
        return type(node).__name__.removesuffix("Screen")
    return getattr(node, "BINDING_GROUP_TITLE", None) or type(node).__name__


def _group(title: str, entries: Iterable[tuple[str, str]], columns: int) -> Content:
    cells = [
        Content.assemble((fit(keys, KEY_CELLS - 1).rstrip().rjust(KEY_CELLS - 1), "bold $text-accent"), " ", does)
        for keys, does in entries
    ]
    lines = -(-len(cells) // columns)
    room = KEY_CELLS + WORDS_CELLS - 1
    rows = [
        Content(" ").join(cell.truncate(room, ellipsis=True, pad=True) for cell in cells[row::lines])
        for row in range(lines)
    ]
    return Content("\n").join([Content.styled(title, "bold $text-primary"), *rows])


T = TypeVar("T")


class RefusingScreen(CoveredScreenFix[T]):
    """A screen whose footer and list of keys have only what can be used; the other keys say what they lack."""

    def why_not(self, action: str, *parameters: object) -> str:
        """Returns why an action of the screen cannot be used now, in a sentence; "" if it can."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self.why_not(action, *parameters)

    def on_key(self, event: events.Key) -> None:
        """Says why the key does nothing; it comes here before any binding is looked up."""
        bindings = self._bindings.key_to_bindings.get(event.key, ())
        calls = [
            (name, arguments)
            for namespace, name, arguments in (actions.parse(binding.action) for binding in bindings)
            if not namespace
        ]
        why = next((why for name, arguments in calls if (why := self.why_not(name, *arguments))), "")
        # A widget in focus, or the program, may use the same key.
        if why and event.key not in self.active_bindings:
            self.notify(why, markup=False)
