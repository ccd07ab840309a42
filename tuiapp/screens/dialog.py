"""What dialogs have in common: a framed box in front of a screen; a form in it, or a list to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from tuiapp.terminal.resize import ResizeLoopFix
from tuiapp.trainers.state.text import sanitize

T = TypeVar("T")


class Dialog(ModalScreen[T], ResizeLoopFix[T]):
    """Subclasses compose a container `#dialog`, with buttons in `#buttons`."""

    CSS_PATH = "dialogs.tcss"


class Form(Dialog[T]):
    """Asks for values, checked while they are typed, and returns what they make; None on escape. Writes nothing itself.

    Subclasses yield the fields and a `Static` for the verdict.
    """

    AUTO_FOCUS: ClassVar[str | None] = "Input"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel")]

    def __init__(self, title: str, does: str) -> None:
        """`does` is the label of the button that takes the values."""
        super().__init__()
        self._title, self._does = title, does

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(sanitize(self._title))
            yield from self.fields()
            with Horizontal(id="buttons"):
                yield Button(self._does, variant="primary", id="accept")
                yield Button("Cancel", id="cancel")

    def fields(self) -> ComposeResult:
        raise NotImplementedError

    def fault(self) -> str:
        """Returns why the values cannot be taken; "" if they can."""
        raise NotImplementedError

    def result(self) -> T:
        raise NotImplementedError

    def verdict(self, fault: str) -> tuple[str, str]:
        """Returns what is said of the values, and the class that colours it."""
        return (f"✗ {fault}", "-wrong") if fault else ("", "")

    def on_mount(self) -> None:
        self.judge()

    @on(Input.Changed)
    def judge(self) -> None:
        fault, verdict = self.fault(), self.query_one("#verdict", Static)
        words, kind = self.verdict(fault)
        verdict.set_classes(kind)
        verdict.update(Content(sanitize(words)))
        self.query_one("#accept", Button).disabled = bool(fault)

    @on(Input.Submitted)
    @on(Button.Pressed, "#accept")
    def action_accept(self) -> None:
        if not self.fault():
            self.dismiss(self.result())

    @on(Button.Pressed, "#cancel")
    def _cancel(self) -> None:
        self.dismiss(None)


class Picker(Dialog[T]):
    """Lists options, with a search field those that are searched for; subclasses say which, and take the chosen one."""

    def __init__(self, title: str, search: Input | None = None) -> None:
        super().__init__()
        self._title, self._search_field = title, search

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(self._title)
            if self._search_field:
                yield self._search_field
            yield OptionList(id="choices", markup=False)

    def found(self, search: str) -> tuple[Sequence[Option], int | None]:
        """Returns the options in which a text is found, and the index of that under the cursor."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.fill()

    @on(Input.Changed)
    def fill(self) -> None:
        box, field = self.query_one(OptionList), self._search_field
        options, highlighted = self.found(field.value.strip() if field else "")
        box.clear_options()
        box.add_options(options)
        box.highlighted = highlighted

    @on(Input.Submitted)
    def _take_highlighted(self) -> None:
        self.query_one(OptionList).action_select()

    def action_move(self, where: str) -> None:
        getattr(self.query_one(OptionList), f"action_{where}")()


def moving_keys(group: str, what: str) -> list[BindingType]:
    """Returns the keys that move the cursor of a picker while its search field has the focus."""
    return [
        Binding("down", "move('cursor_down')", f"Next {what}", id=f"{group}.next", show=False),
        Binding("up", "move('cursor_up')", f"Previous {what}", id=f"{group}.previous", show=False),
        Binding("pagedown", "move('page_down')", "A page down", id=f"{group}.page-down", show=False),
        Binding("pageup", "move('page_up')", "A page up", id=f"{group}.page-up", show=False),
    ]
