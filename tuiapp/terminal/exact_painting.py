"""A screen that paints all that has changed, renders nothing else, and writes only the cells that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import ClassVar, TypeAlias, TypeVar

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, CompositorMap, LayoutUpdate, ReflowResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import SGR_STYLES, Strip
from textual.widget import Widget

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
        full_map = super().full_map
        # What follows from it, and Textual would keep.
        self._cuts = self._layers = self._layers_visible = None
        self._mark(before ^ self._places())
        return full_map

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        before = self._places() if self._visible_map is not None else set()
        result = super().reflow(parent, size)
        if before:
            self._mark(before ^ self._places())
        return result

    def _places(self) -> set[tuple[Widget, Region]]:
        """What is seen of each widget, by the newest of the two maps."""
        newest = self._full_map if self._visible_map is None else self._visible_map
        return {(widget, geometry.region.intersection(geometry.clip)) for widget, geometry in newest.items()}

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
        for widget, (widget_region, clip) in self.visible_widgets.items():
            seen = widget_region.intersection(clip)
            if due := [region.intersection(seen) for region in left if region.overlaps(seen)]:
                # Whole lines: they are cut where another widget begins.
                _, y, _, height = Region.from_union(due)
                lines = Region(seen.x, y, seen.width, height)
                strips = widget.render_lines(lines.translate(-widget_region.offset))
                yield lines, lines, strips
                # A widget that has just been removed is empty: what is behind it shows.
                if all(strip.cell_length >= seen.width for strip in strips):
                    left = {region for region in left if not seen.contains_region(region)}
            if not left:
                break


Piece: TypeAlias = tuple[int, str, Style]
"""A column, and what is written from there on."""

Painted: TypeAlias = dict[int, tuple[list[int], dict[int, Strip]]]
"""By line: the columns where its parts end, and each part as it was written, by the column where it begins."""

PLAIN = Style()
BITS = len(SGR_STYLES)


class ChangedCells(ChopsUpdate):
    """Textual 8.2.8 writes each changed line of a widget whole, and colours and styles anew for each run of cells."""

    def __init__(self, update: ChopsUpdate, painted: Painted) -> None:
        super().__init__(update.chops, update.spans, update.chop_ends)
        self._painted = painted

    def render_segments(self, console: Console) -> str:
        """Returns what brings the terminal up to date, and takes it as written."""
        writer = Writer(console._color_system or ColorSystem.TRUECOLOR)
        for y, left, right in self.spans:
            ends = self.chop_ends[y]
            painted_ends, parts = self._painted.get(y, (None, {}))
            if painted_ends != ends:
                self._painted[y] = ends, (parts := {})
            for end, (x, strip) in zip(ends, self.chops[y].items(), strict=False):
                if strip is not None and x < right and end > left:
                    writer.write(y, x, strip, parts.get(x))
                    parts[x] = strip
        return writer.text()


class Writer:
    def __init__(self, colors: ColorSystem) -> None:
        self._colors = colors
        self._written: list[str] = []
        self._at = (-1, -1)
        self._style: tuple[str, str, str] | None = None

    def write(self, y: int, x: int, strip: Strip, before: Strip | None) -> None:
        """Writes a part of a line, or what differs from the one before."""
        if strip == before:
            return
        if not all(map(is_simple, strip)):
            self._written += ["\x1b[0m", f"\x1b[{y + 1};{x + 1}H"]
            self._written += [strip.render_style(style or PLAIN, text, self._colors) for text, style, _ in strip]
            self._at, self._style = (-1, -1), None
            return
        pieces: Iterable[Piece] = _pieces(strip)
        if before is not None and before.cell_length == strip.cell_length and all(map(is_simple, before)):
            pieces = differing(pieces, _pieces(before))
        for column, text, style in pieces:
            self._move(y, x + column)
            self._dress(style)
            self._written.append(text)
            self._at = y, x + column + len(text)

    def text(self) -> str:
        return "".join([*self._written, "\x1b[0m"]) if self._written else ""

    def _move(self, y: int, x: int) -> None:
        if (y, x) == self._at:
            return
        by = x - self._at[1]
        self._written.append(f"\x1b[{by}C" if y == self._at[0] and by > 0 else f"\x1b[{y + 1};{x + 1}H")

    def _dress(self, style: Style) -> None:
        """Says what differs from the last style; attributes can only be taken back all at once."""
        wanted, last = codes(style, self._colors), self._style
        if wanted == last:
            return
        attributes, color, background = wanted
        if last is None or last[0] != attributes:
            parts = ["0", *filter(None, wanted)]
        else:
            parts = [color or "39"] if color != last[1] else []
            parts += [background or "49"] if background != last[2] else []
        self._written.append(f"\x1b[{';'.join(parts)}m")
        self._style = wanted


@lru_cache(1024)
def codes(style: Style, colors: ColorSystem) -> tuple[str, str, str]:
    """Returns the codes of a style's attributes, colour and background."""
    bits = style._attributes & style._set_attributes
    color, background = style.color, style.bgcolor
    return (
        ";".join(SGR_STYLES[bit] for bit in range(BITS) if bits & (1 << bit)),
        ";".join(color.downgrade(colors).get_ansi_codes()) if color else "",
        ";".join(background.downgrade(colors).get_ansi_codes(False)) if background else "",
    )


def is_simple(segment: Segment) -> bool:
    """Whether each of its characters is a cell, and it is no link."""
    return not segment.control and not (segment.style and segment.style.link) and is_narrow(segment.text)


@lru_cache(4096)
def is_narrow(text: str) -> bool:
    """Whether each character takes one cell."""
    return (text.isascii() and text.isprintable()) or all(
        get_character_cell_size(character) == 1 for character in set(text)
    )


def _pieces(strip: Strip) -> list[Piece]:
    pieces, x = [], 0
    for text, style, _ in strip:
        pieces.append((x, text, style or PLAIN))
        x += len(text)
    return pieces


def differing(new: Iterable[Piece], old: Iterable[Piece]) -> Iterator[Piece]:
    """Yields what of a line differs from another one of the same length."""
    old_pieces = iter(old)
    start, old_text, old_style = next(old_pieces, (0, "", PLAIN))
    for x, text, style in new:
        done = 0
        while done < len(text):
            while x + done >= start + len(old_text):
                start, old_text, old_style = next(old_pieces)
            here = x + done - start
            size = min(len(text) - done, len(old_text) - here)
            part, old_part = text[done : done + size], old_text[here : here + size]
            if style != old_style:
                yield x + done, part, style
            elif part != old_part:
                first = next(n for n in range(size) if part[n] != old_part[n])
                last = next(n for n in range(size, 0, -1) if part[n - 1] != old_part[n - 1])
                yield x + done + first, part[first:last], style
            done += size
