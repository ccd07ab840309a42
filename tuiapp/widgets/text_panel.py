"""A panel of lines that are regenerated as the run continues."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from tuiapp.trainers.state.run_state import RunState
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.lines import Lines


class TextPanel(VerticalScroll):
    DEFAULT_CSS = """
    TextPanel {
        background: $background;
        padding: 0 0 0 1;
    }
    """

    WAITING: ClassVar[str] = ""
    LEAST_WIDTH: ClassVar[int] = 24
    """Below this width lines are cut, not fitted."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunState()
        self._has_lines = False

    def compose(self) -> ComposeResult:
        yield Lines(Content.styled(self.WAITING, MUTED))

    def on_mount(self) -> None:
        # An ended run has no more news that would draw it anew.
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw())

    def lines(self, state: RunState, width: int) -> list[Content]:
        """Returns the lines about a run for a width in cells; an empty list keeps the present ones."""
        raise NotImplementedError

    def show(self, state: RunState) -> None:
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width = max(self.LEAST_WIDTH, self.outer_size.width - self.styles.gutter.width - 1)  # the scrollbar's column
        lines = self.lines(self._state, width)
        if not lines and self._has_lines:
            # A replay restarted.
            lines = [Content.styled(self.WAITING, MUTED)]
        if lines:
            self._has_lines = True
            self.query_one(Lines).update(lines)
