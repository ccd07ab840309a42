"""Lines of text that are made anew as a whole, of which only those that differ are painted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.trainers.state.run_state import RunState
from tuiapp.widgets.colors import MUTED, mark_selection

UNKNOWN_WIDTH = 1000
"""Before the first layout."""

Text: TypeAlias = Sequence[Content] | Callable[[int], Sequence[Content]]
"""Lines, or what makes them for a width in cells."""


class TextView(Widget):
    """A view as high as its lines; those that are too long are cut.

    A `Static` renders all its lines whenever one has changed, also those that are out of sight.
    """

    DEFAULT_CSS = """
    TextView { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, *lines: Content, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._text: Text = lines
        self._lines: Sequence[Content] = lines

    @property
    def line_count(self) -> int:
        return len(self._lines)

    def on_resize(self) -> None:
        if callable(self._text):
            self.update(self._text)

    def update(self, text: Text) -> None:
        """Shows other lines, or those made for the present width and, when it changes, for that."""
        self._text = text
        lines = self.lines_for(self.content_size.width or UNKNOWN_WIDTH)
        both = enumerate(zip_longest(self._lines, lines))
        changed = [line for line, (old, new) in both if old is None or new is None or not new.is_same(old)]
        self._lines = lines
        # Textual 8.2.8 keeps an automatic height that it measured between a resize and the answer to it.
        self.styles.height = len(lines) + self.gutter.height
        if changed:
            self.refresh(*(Region(0, line, self.size.width, 1) for line in changed))

    def lines_for(self, width: int) -> Sequence[Content]:
        """Returns the lines that it shows at a width."""
        return self._text(width) if callable(self._text) else self._text

    def render(self) -> Content:
        return Content("\n").join(self._lines)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        line = self._lines[y].truncate(self.size.width, ellipsis=True)
        return mark_selection(self, Strip(line.render_segments(self.visual_style), line.cell_length), y)


class TextPanel(VerticalScroll):
    """Scrolls lines about a run, which are made anew as it continues."""

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
        yield TextView(Content.styled(self.WAITING, MUTED))

    def on_mount(self) -> None:
        # An ended run has no more news that would draw it anew.
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw())

    @property
    def line_count(self) -> int:
        return self.query_one(TextView).line_count

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
            self.query_one(TextView).update(lines)
