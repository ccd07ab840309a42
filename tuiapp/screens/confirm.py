"""A question with a few answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, TypeAlias, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from tuiapp.actions.action import Question
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.dialog import Dialog
from tuiapp.trainers.state.text import sanitize, sanitize_lines

Variant: TypeAlias = Literal["default", "primary", "error", "warning"]

ROOM_CELLS = 66
"""Answers that are wider together are stacked: the dialog must fit 80 columns."""

BUTTON_FRAME_CELLS = 7
"""Border, padding and gap of a button."""


RENEW_S = 0.5
"""Between two looks whether the question still holds."""


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
