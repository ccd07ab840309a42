"""Draws with ASCII alone, for terminals and fonts that have nothing else, and finds out whether this is one."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_LOOKS_LIKE = {
    **dict.fromkeys("─╌┄┈╴╶╼―‐‑‒–—▔▁", "-"),
    # A progress bar's done part is a heavy line, the rest a light one: they must stay distinct.
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
    # Not a full stop: cut text must not look whole.
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
"""Character → its ASCII replacement of one cell."""

_DOTS_OF_BRAILLE = 0x2800
_LEVELS = " .:=#"
"""Braille by its number of dots, two per level."""


class AsciiFilter(LineFilter):
    """Replaces each non-ASCII character sent to the terminal by a look-alike of one cell, or "?"."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


@lru_cache(4096)
def to_ascii(text: str) -> str:
    """Converts a text to ASCII of the same width in cells."""
    return "".join(map(_stand_in, text))


@lru_cache(4096)
def _stand_in(character: str) -> str:
    if character.isascii():
        return character
    if look_alike := _LOOKS_LIKE.get(character):
        return look_alike
    dots = ord(character) - _DOTS_OF_BRAILLE
    if 0 <= dots < 256:
        return _LEVELS[(dots.bit_count() + 1) // 2]
    width = cell_len(character)
    # é is an e with a mark: keep the letter.
    letter = unicodedata.normalize("NFKD", character)[:1]
    return letter if letter.isascii() and letter.isprintable() and width == 1 else "?" * width


def wants_ascii(setting: str, environment: Mapping[str, str]) -> bool:
    """Whether to draw with ASCII alone.

    `setting` is on, off, or auto: ASCII on the kernel's own console, which has few characters, and in a locale that is
    C or has an encoding other than UTF-8.
    """
    if setting != "auto":
        return setting == "off"
    if environment.get("TERM", "") in ("linux", "dumb", "vt100", "vt220"):
        return True
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if locale == "C.UTF-8" and not environment.get("LC_ALL"):
        # Python itself sets LC_CTYPE to this where the locale is C (PEP 538).
        locale = environment.get("LANG") or locale
    if not locale:
        return False
    encoding = locale.partition(".")[2].partition("@")[0].lower().replace("-", "")
    return locale in ("C", "POSIX") or (bool(encoding) and encoding != "utf8")
