"""A partial update that writes only the cells that differ from what stands on the terminal, in few escape sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import SGR_STYLES, Strip

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
            known, parts = self._painted.get(y, (None, {}))
            if known != ends:
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
        for place, text, style in pieces:
            self._move(y, x + place)
            self._dress(style)
            self._written.append(text)
            self._at = y, x + place + len(text)

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
    return (text.isascii() and text.isprintable()) or all(get_character_cell_size(one) == 1 for one in set(text))


def _pieces(strip: Strip) -> list[Piece]:
    pieces, x = [], 0
    for text, style, _ in strip:
        pieces.append((x, text, style or PLAIN))
        x += len(text)
    return pieces


def differing(new: Iterable[Piece], old: Iterable[Piece]) -> Iterator[Piece]:
    """Returns what of a line differs from another one of the same length."""
    others = iter(old)
    start, was, its = next(others, (0, "", PLAIN))
    for x, text, style in new:
        done = 0
        while done < len(text):
            while x + done >= start + len(was):
                start, was, its = next(others)
            here = x + done - start
            size = min(len(text) - done, len(was) - here)
            part, other = text[done : done + size], was[here : here + size]
            if style != its:
                yield x + done, part, style
            elif part != other:
                first = next(n for n in range(size) if part[n] != other[n])
                last = next(n for n in range(size, 0, -1) if part[n - 1] != other[n - 1])
                yield x + done + first, part[first:last], style
            done += size
