"""A one-line control for choosing one of a few values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

MENU_CELLS, AROUND_NOTE = 90, 8
"""Width of a menu at most, and of its frame, its scroll bar, and the gap between a value and its note."""

LEAST_NOTE = 20


class ChoiceInput(Widget, can_focus=True):
    """Shows the chosen value; enter opens a menu of all values, left and right take the neighbour.

    A letter opens the menu, too; what is typed leads to the value that begins so.

    Unlike Textual's `Select` it can list unavailable values with the reason, and ask for a remedy, explains each value
    in the menu, and builds the menu only when it opens.
    """

    ALLOW_SELECT = False

    BINDING_GROUP_TITLE = "Choice"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "open", "Open the menu", id="choice.open-the-menu", show=False),
        Binding("left", "step(-1)", "Previous value", id="choice.previous-value", show=False),
        Binding("right", "step(1)", "Next value", id="choice.next-value", show=False),
        Binding("escape", "close", "Close the menu", id="choice.close-the-menu", show=False),
    ]

    DEFAULT_CSS = """
    ChoiceInput {
        height: 1;
        padding: 0 1;
        background: $surface;
        color: $foreground;
        pointer: pointer;

        &:hover { background: $surface-lighten-1; }
        &:focus { background: $primary; color: $text; text-style: bold; }

        OptionList {
            overlay: screen;
            constrain: inside;
            offset: -1 1;
            width: auto;
            min-width: 24;
            max-width: 90;
            height: auto;
            max-height: 14;
            border: tall $primary;
            background: $surface;
            text-style: none;
        }
    }
    """

    value: reactive[str] = reactive("")
    """May be an unavailable value if a preset contains it."""

    @dataclass
    class Changed(Message):
        """The user chose another value."""

        value: str

    @dataclass
    class PrefixChosen(Message):
        """The user chose the menu entry for a typed value."""

        prefix: str

    @dataclass
    class UnavailableChosen(Message):
        """The user chose an unavailable value in the menu: what can be done about it?"""

        value: str

    def __init__(
        self,
        *,
        choices: Sequence[str],
        value: str,
        prefixes: Sequence[str] = (),
        notes: Mapping[str, str] | None = None,
        unavailable: Mapping[str, str] | None = None,
    ) -> None:
        """Each of `prefixes` is an entry for typed values; `unavailable` maps values to a reason and a remedy."""
        super().__init__()
        self.choices = choices
        self.prefixes = prefixes
        self.notes = notes or {}
        self.unavailable = unavailable or {}
        self.set_reactive(ChoiceInput.value, value)
        self._typed = ""
        """What was typed in the open menu."""

    def render(self) -> Content:
        width = max(self.content_size.width, 2)
        return Content(self.value).truncate(width - 2, ellipsis=True, pad=True).append(" ▾")

    def take(self, value: str) -> None:
        """Chooses a value as the user would; ignored if it is unavailable."""
        if value != self.value and value in self.choices and value not in self.unavailable:
            self.value = value
            self.post_message(self.Changed(value))

    def action_step(self, by: int) -> None:
        index = self.choices.index(self.value) if self.value in self.choices else 0
        further = self.choices[index + 1 :] if by > 0 else self.choices[:index][::-1]
        if choice := next((choice for choice in further if choice not in self.unavailable), None):
            self.take(choice)

    async def action_open(self) -> None:
        if self.query(OptionList):
            return
        entries = [*self.choices, *self.prefixes]
        self._typed = ""
        menu = _Menu(*(Option(self._entry(entry), id=entry) for entry in entries))
        await self.mount(menu)
        menu.highlighted = self.choices.index(self.value) if self.value in self.choices else None
        menu.focus(scroll_visible=False)
        # Before the menu has a size nothing is scrolled to.
        menu.call_after_refresh(menu.scroll_to_highlight)

    async def on_key(self, event: events.Key) -> None:
        entries = [*self.choices, *self.prefixes]
        if not event.character or not (event.character.isalnum() or event.character in "".join(entries)):
            return
        event.stop()
        await self.action_open()
        typed_in_all = self._typed + event.character
        for typed in (typed_in_all[start:] for start in range(len(typed_in_all))):
            if (index := next((n for n, entry in enumerate(entries) if entry.startswith(typed)), None)) is not None:
                self._typed = typed
                self.query_one(_Menu).highlighted = index
                return

    async def action_close(self) -> None:
        self.focus()
        await self.query(OptionList).remove()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Claims escape only while the menu is open."""
        return bool(self.query(OptionList)) == (action == "close")

    async def on_click(self) -> None:
        await (self.action_close() if self.query(OptionList) else self.action_open())

    @on(OptionList.OptionSelected)
    async def _take_from_menu(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        await self.action_close()
        match event.option_id:
            case None:
                return
            case prefix if prefix in self.prefixes:
                self.post_message(self.PrefixChosen(prefix))
            case choice if choice in self.unavailable:
                self.post_message(self.UnavailableChosen(choice))
            case choice:
                self.take(choice)

    @on(OptionList.OptionHighlighted)
    def _stop_highlight(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()

    @on(events.DescendantBlur)
    async def _drop_menu(self) -> None:
        await self.query(OptionList).remove()

    def _entry(self, choice: str) -> Content:
        width = max(map(len, [*self.choices, *self.prefixes]))
        note = self.notes.get(choice, "")
        if reason := self.unavailable.get(choice, ""):
            note = f"cannot run here: {reason.partition(': ')[0]} (Enter: what to do)"
        name = f"{choice}…" if choice in self.prefixes else choice
        room = max(LEAST_NOTE, min(MENU_CELLS, self.app.size.width) - width - AROUND_NOTE)
        # Not fainter than the name: it would be unreadable on the cursor's background.
        beside = f"\n{' ' * (width + 2)}".join(wrap(note, room))
        return Content.assemble((name.ljust(width), "bold"), f"  {beside}" if beside else "")


class _Menu(OptionList):
    def get_content_width(self, container: Size, viewport: Size) -> int:
        return min(super().get_content_width(container, viewport), viewport.width - self.gutter.width)
