"""The keys that work now, by screen, widget and program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from textual import actions, events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Static

from tuiapp.screens.dialog import Dialog
from tuiapp.screens.palette import own_bindings
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.trainers.state.text import fit

KEY_CELLS, WORDS_CELLS = 11, 23
"""Cells of a key and of its description."""

FRAME_CELLS = 7
"""The dialog's border, padding and scroll bar."""


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
