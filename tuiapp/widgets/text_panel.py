"""A panel of lines that are written anew as the run goes on."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tuiapp.state.run_facts import RunFacts
from tuiapp.widgets.colors import MUTED


class TextPanel(VerticalScroll):
    """Shows what `lines` makes of a run, in the width there is; a subclass says what that is."""

    DEFAULT_CSS = """
    TextPanel {
        background: $background;
        padding: 0 0 0 1;

        Static { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    WAITING: ClassVar[str] = ""
    """What stands there before there are lines."""

    LEAST_WIDTH: ClassVar[int] = 24
    """Narrower than this the lines are cut, not fitted."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunFacts()
        self._height = 0
        """Lines on show: only when they change is a layout due."""

    def compose(self) -> ComposeResult:
        yield Static(Content.styled(self.WAITING, MUTED), markup=False)

    def lines(self, state: RunFacts, width: int) -> list[Content]:
        """The lines about a run in a width of cells; none leaves what stands there."""
        raise NotImplementedError

    def show(self, state: RunFacts) -> None:
        """Show a run as it is now."""
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        """Fit the lines anew."""
        self._draw()

    def _draw(self) -> None:
        width = max(self.LEAST_WIDTH, self.outer_size.width - self.gutter.width - 1)  # the scrollbar's column
        lines = self.lines(self._state, width)
        if not lines and self._height:
            # A replay begins again.
            lines = [Content.styled(self.WAITING, MUTED)]
        if lines:
            self.query_one(Static).update(Content("\n").join(lines), layout=len(lines) != self._height)
            self._height = len(lines)
