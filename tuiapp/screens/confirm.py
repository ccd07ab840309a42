"""A question with a few answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from tuiapp.state.text import sanitize, sanitize_lines
from tuiapp.terminal.resize import ResizeLoopFix

Variant: TypeAlias = Literal["default", "primary", "error", "warning"]

ROOM_CELLS = 66
"""Answers that are wider together are stacked: the dialog must fit 80 columns."""

BUTTON_FRAME_CELLS = 7
"""Border, padding and gap of a button."""


class Choice(ModalScreen[str | None], ResizeLoopFix[str | None]):
    """Asks a question; returns the id of the chosen answer, or None on escape."""

    CSS_PATH = "confirm.tcss"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        Binding("left,up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("right,down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]

    def __init__(self, title: str, text: str, choices: Sequence[tuple[str, str, str]]) -> None:
        """`choices`: id, label and variant (default, primary, error, warning) of each answer; the first is focused."""
        super().__init__()
        self._title = sanitize(title)
        self._text = "\n".join(sanitize_lines(text))
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(self._title)
            if self._text:
                yield Static(self._text, id="text", markup=False)
            with Container(id="choices") as answers:
                for choice, label, variant in self._choices:
                    yield Button(Content(label), variant=cast(Variant, variant), id=choice)
            width = sum(len(label) + BUTTON_FRAME_CELLS for _, label, _ in self._choices)
            answers.set_class(width > ROOM_CELLS, "-stacked")

    @on(Button.Pressed)
    def _answer(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(event.button.id)
