"""Draws with ASCII alone, for terminals and fonts that have nothing else."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_LOOKS_LIKE = {
    **dict.fromkeys("─╌┄┈╴╶╼―‐‑‒–—▔▁", "-"),
    # What is done of a progress bar is a heavy line, what is left a light one: they must not become the same.
    **dict.fromkeys("━═╍┅┉╸╺╾", "="),
    **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻╽╿▏▕", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼╔╗╚╝╠╣╦╩╬┏┓┗┛┣┫┳┻╋╒╓╕╖╘╙╛╜╞╟╡╢╤╥╧╨╪╫", "+"),
    **dict.fromkeys("█▉▊▋▌▐▛▜▙▟▀▄▆▇■▮▰⬛", "#"),
    **dict.fromkeys("▎▍▅▃▂▖▗▘▝▚▞", "="),
    **dict.fromkeys("░▒□▯▱⬜", "."),
    **dict.fromkeys("▓", "%"),
    **dict.fromkeys("●◆◉★⬤▪•", "*"),
    **dict.fromkeys("○◇◌☆◯", "o"),
    **dict.fromkeys("·∙‧⋅", "."),
    **dict.fromkeys("▲△▴↑⇡⬆", "^"),
    **dict.fromkeys("▼▽▾↓⇣⬇", "v"),
    **dict.fromkeys("▶▷▸►→⇢⮕›»", ">"),
    **dict.fromkeys("◀◁◂◄←⇠‹«", "<"),
    "✓": "v",
    "✔": "v",
    "✖": "x",
    "✗": "x",
    "✘": "x",
    "×": "x",
    "⏎": "<",
    # Not a full stop: what is cut must not look whole.
    "…": "~",
    "µ": "u",
    "°": "'",
    "±": "~",
    "≈": "~",
    "σ": "s",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "\u00a0": " ",
}
"""Character → the ASCII character, one cell wide, that stands for it."""

_DOTS_OF_BRAILLE = 0x2800
_LEVELS = " .:=#"
"""Braille by how many of its eight dots are there, two to a step."""


class AsciiFilter(LineFilter):
    """Puts a look-alike of one cell, or "?", in the place of each character that is not ASCII.

    It works on lines as they are sent to the terminal: no widget need know of it.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments, each as many cells wide as before."""
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


@lru_cache(4096)
def to_ascii(text: str) -> str:
    """A text in ASCII, as many cells wide."""
    return "".join(map(_stand_in, text))


@lru_cache(4096)
def _stand_in(character: str) -> str:
    if character.isascii():
        return character
    if known := _LOOKS_LIKE.get(character):
        return known
    dots = ord(character) - _DOTS_OF_BRAILLE
    if 0 <= dots < 256:
        return _LEVELS[(dots.bit_count() + 1) // 2]
    width = cell_len(character)
    # é is an e with a mark: the letter is what can be read.
    letter = unicodedata.normalize("NFKD", character)[:1]
    return letter if letter.isascii() and letter.isprintable() and width == 1 else "?" * width
