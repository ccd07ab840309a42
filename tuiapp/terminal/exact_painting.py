"""A screen that paints all that has changed, and renders nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual._compositor import ChopsUpdate, Compositor, CompositorMap, LayoutUpdate, ReflowResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.terminal.changed_cells import ChangedCells, Painted

T = TypeVar("T")


class ExactPainting(Screen[T]):
    """Has a compositor that takes what has changed exactly, wherever on the screen that is."""

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        self._compositor: ExactCompositor = ExactCompositor()

    def on_screen_suspend(self) -> None:
        self._compositor.painted.clear()


class ExactCompositor(Compositor):
    last: ClassVar[ExactCompositor | None] = None
    """The compositor that has painted last."""

    def __init__(self) -> None:
        super().__init__()
        self.painted: Painted = {}
        """What of it stands on the terminal, as far as it is known."""
        self._due: set[Region] = set()
        """While an update is made: the regions of the screen that it paints."""

    @property
    def full_map(self) -> CompositorMap:
        """Where each widget is, laid out anew if something was scrolled.

        Textual 8.2.8 compares the next layout with this map, as if it were painted. Where a widget's place is asked for
        between a scroll and a layout, or a scroll is taken back with a layout, old lines stay on the screen. Not
        reported upstream.
        """
        if self._due:
            # What is painted is cut as it was laid out before; a widget that has been removed asks for its place.
            return self._full_map
        if self.root is None or not self._full_map_invalidated:
            return super().full_map
        before = self._places()
        found = super().full_map
        # What follows from it, and Textual would keep.
        self._cuts = self._layers = self._layers_visible = None
        self._mark(before ^ self._places())
        return found

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        before = self._places() if self._visible_map is not None else set()
        found = super().reflow(parent, size)
        if before:
            self._mark(before ^ self._places())
        return found

    def _places(self) -> set[tuple[Widget, Region]]:
        """What is seen of each widget, by the newest of the two maps."""
        newest = self._full_map if self._visible_map is None else self._visible_map
        return {(widget, place.region.intersection(place.clip)) for widget, place in newest.items()}

    def _mark(self, places: set[tuple[Widget, Region]]) -> None:
        self._dirty_regions.update(region for _, region in places if region)

    def render_partial_update(self) -> ChopsUpdate | None:
        self._due = self._dirty_regions.copy()
        try:
            update = super().render_partial_update()
        finally:
            self._due = set()
        if update is None:
            return None
        if ExactCompositor.last is not self:
            self.painted.clear()
            ExactCompositor.last = self
        return ChangedCells(update, self.painted)

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        self.painted.clear()
        ExactCompositor.last = self
        return super().render_full_update(simplify)

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Renders the widgets that are seen in what is due.

        For a partial update Textual 8.2.8 renders all widgets in the rectangle around all that is due, and those behind
        them, and drops what it has no use for: a change in each of two corners costs the whole screen. Not reported
        upstream.
        """
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
                strips = widget.render_lines(lines.translate(-region.offset))
                yield lines, lines, strips
                # A widget that has just been removed is empty: what is behind it shows.
                if all(strip.cell_length >= seen.width for strip in strips):
                    left = {one for one in left if not seen.contains_region(one)}
            if not left:
                break
