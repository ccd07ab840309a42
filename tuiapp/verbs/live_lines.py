"""A few lines at the bottom of a terminal that are drawn anew in place, with a log that grows above them."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

ERASE_BELOW = "\x1b[J"
UP = "\x1b[{}A"

DEFAULT_CELLS = 80


class LiveLines:
    """Draws lines and takes them away again; every frame is one write, and no line is ever as wide as the terminal.

    The terminal may be resized at any time: what an earlier frame takes of rows is reckoned anew at the present width,
    because terminals break lines that no longer fit.

    Args:
        stream: A terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: list[str] = []

    @property
    def cells(self) -> int:
        """The terminal's width."""
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or DEFAULT_CELLS
        return DEFAULT_CELLS

    def draw(self, lines: Sequence[str]) -> None:
        """Put lines in the place of those that stand there."""
        room = self.cells - 1
        drawn = [cut(line, room) for line in lines]
        if drawn != self._shown:
            self._write(self._erased() + "".join(f"{line}\n" for line in drawn))
            self._shown = drawn

    def print_above(self, text: str) -> None:
        """A line that stays, above those that change."""
        self._write(f"{self._erased()}{text}\n" + "".join(f"{line}\n" for line in self._shown))

    def close(self) -> None:
        """Leave what stands there where it is."""
        self._shown = []

    def clear(self) -> None:
        """Take the lines away."""
        self._write(self._erased())
        self._shown = []

    def _erased(self) -> str:
        width = max(1, self.cells)
        rows = sum(max(1, -(-cell_count(line) // width)) for line in self._shown)
        return f"{UP.format(rows)}\r{ERASE_BELOW}" if rows else ""

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


def cell_count(text: str) -> int:
    """How many cells a text takes."""
    return sum(_cells_of(character) for character in text)


def cut(text: str, cells: int) -> str:
    """As much of a text as fits into so many cells, with "…" where something is missing."""
    if cell_count(text) <= cells:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells_of(character)
        if used > cells - 1:
            break
        kept += character
    return f"{kept}…" if cells > 0 else ""


def _cells_of(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
