"""What dialogs have in common: a framed box in front of a screen; a form in it, or a list to choose from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, TypeAlias, TypeVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from tuiapp.actions.action import Question
from tuiapp.library.in_thread import in_thread
from tuiapp.terminal.textual_fixes import ResizeLoopFix
from tuiapp.trainers.state.text import sanitize, sanitize_lines

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
        text, kind = self.verdict(fault)
        verdict.set_classes(kind)
        verdict.update(Content(sanitize(text)))
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

    def options_for(self, search: str) -> tuple[Sequence[Option], int | None]:
        """Returns the options in which a text is found, and the index of that under the cursor."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.fill()

    @on(Input.Changed)
    def fill(self) -> None:
        box, field = self.query_one(OptionList), self._search_field
        options, highlighted = self.options_for(field.value.strip() if field else "")
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


Variant: TypeAlias = Literal["default", "primary", "error", "warning"]

ROOM_CELLS = 66
"""Most cells of answers beside each other; wider ones are stacked: the dialog must fit 80 columns."""

BUTTON_FRAME_CELLS = 7
"""Border, padding and gap of a button."""


RENEW_S = 0.5
"""Time between two looks whether the question still holds."""


class Choice(Dialog[str | None]):
    """Asks a question; returns the id of the chosen answer, or None on escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        Binding("left,up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("right,down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]

    def __init__(
        self,
        title: str,
        text: str,
        choices: Sequence[tuple[str, str, str]],
        *,
        now: Callable[[], Question] | None = None,
    ) -> None:
        """`now` returns what is to be asked at that moment, called in a thread; it replaces the question."""
        super().__init__()
        self._question = Question(title, text, choices)
        self._now = now
        self._asking = False

    def compose(self) -> ComposeResult:
        title, text, choices = self._question
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(sanitize(title))
            if text:
                yield Static("\n".join(sanitize_lines(text)), id="text", markup=False)
            with Container(id="choices") as answers:
                for choice, label, variant in choices:
                    yield Button(Content(label), variant=cast(Variant, variant), id=choice)
            width = sum(len(label) + BUTTON_FRAME_CELLS for _, label, _ in choices)
            answers.set_class(width > ROOM_CELLS, "-stacked")

    def on_mount(self) -> None:
        if self._now is not None:
            self.set_interval(RENEW_S, self._renew)

    def _renew(self) -> None:
        if not self._asking:
            self._asking = True
            self.run_worker(self._ask_again())

    async def _ask_again(self) -> None:
        assert self._now is not None
        question = await asyncio.wrap_future(in_thread(self._now))
        self._asking = False
        if question != self._question and self.is_attached:
            self._question = question
            chosen = self.focused.id if self.focused else None
            await self.recompose()
            # Meanwhile the question may have been answered, and the dialog closed.
            if answers := self.query(Button):
                next((answer for answer in answers if answer.id == chosen), answers.first()).focus()

    @on(Button.Pressed)
    def _answer(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(event.button.id)
