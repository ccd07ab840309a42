"""Lines of text that are made anew as a whole, of which only those that differ are painted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.widgets.colors import mark_selection


class Lines(Widget):
    """As high as its lines; those that are too long are cut.

    A `Static` renders all its lines whenever one has changed, also those that are out of sight.
    """

    DEFAULT_CSS = """
    Lines { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, *lines: Content, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Content] = lines

    def update(self, lines: Sequence[Content]) -> None:
        both = enumerate(zip_longest(self._lines, lines))
        changed = [line for line, (old, new) in both if old is None or new is None or not new.is_same(old)]
        self._lines = lines
        # Textual 8.2.8 keeps an automatic height that it measured between a resize and the answer to it.
        self.styles.height = len(lines)
        if changed:
            self.refresh(*(Region(0, line, self.size.width, 1) for line in changed))

    def render(self) -> Content:
        return Content("\n").join(self._lines)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        line = self._lines[y].truncate(self.size.width, ellipsis=True)
        return mark_selection(self, Strip(line.render_segments(self.visual_style), line.cell_length), y)
