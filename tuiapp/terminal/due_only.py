"""A screen that renders only those widgets of which something is due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

T = TypeVar("T")


class DueOnly(Screen[T]):
    """Costs what has changed, wherever on the screen that is.

    For a partial update Textual 8.2.8 renders all widgets in the rectangle around all that is due, and those behind
    them, and drops what it has no use for: a change in each of two corners costs the whole screen. Not reported
    upstream.
    """

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        self._compositor = DueCompositor()


class DueCompositor(Compositor):
    def __init__(self) -> None:
        super().__init__()
        self._due: set[Region] = set()
        """While an update is made: the regions of the screen that it paints."""

    def render_partial_update(self) -> ChopsUpdate | None:
        self._due = self._dirty_regions.copy()
        try:
            return super().render_partial_update()
        finally:
            self._due = set()

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        if not self._due:
            yield from super()._get_renders(crop)
            return
        left = self._due
        # The frontmost comes first.
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if due := [one.intersection(seen) for one in left if one.overlaps(seen)]:
                # Whole lines: they are cut where another widget begins.
                _, y, _, height = Region.from_union(due)
                lines = Region(seen.x, y, seen.width, height)
                yield lines, lines, widget.render_lines(lines.translate(-region.offset))
                left = {one for one in left if not seen.contains_region(one)}
            if not left:
                break
