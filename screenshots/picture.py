"""A terminal's screen as a picture."""

from __future__ import annotations

from pathlib import Path

import pyte
from PIL import Image, ImageDraw, ImageFont

FONT = "DejaVuSansMono.ttf"
FONT_SIZE = 16
CELL = (10, 20)
FOREGROUND, BACKGROUND = "#e0e0e0", "#121212"
_NAMED = {
    "black": "#000000", "red": "#cd3131", "green": "#0dbc79", "brown": "#e5e510",
    "blue": "#2472c8", "magenta": "#bc3fbc", "cyan": "#11a8cd", "white": "#e5e5e5",
}  # fmt: skip
# Where each bit of a braille character stands: column, row.
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


def save(screen: pyte.Screen, path: Path) -> None:
    """Write a screen as PNG.

    Raises:
        OSError: the font is not installed (Debian: fonts-dejavu-core).
    """
    regular = ImageFont.truetype(FONT, FONT_SIZE)
    width, height = CELL
    image = Image.new("RGB", (screen.columns * width, screen.lines * height), BACKGROUND)
    draw = ImageDraw.Draw(image)
    for row in range(screen.lines):
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            ink, paper = _colour(cell.fg, FOREGROUND), _colour(cell.bg, BACKGROUND)
            if cell.reverse:
                ink, paper = paper, ink
            left, top = column * width, row * height
            if paper != BACKGROUND:
                draw.rectangle((left, top, left + width - 1, top + height - 1), fill=paper)
            if cell.data.strip():
                _draw_character(draw, cell.data, left, top, ink, regular)
    image.save(path, optimize=True)


def _draw_character(
    draw: ImageDraw.ImageDraw, text: str, left: int, top: int, ink: str, font: ImageFont.FreeTypeFont
) -> None:
    pattern = ord(text[0]) - 0x2800
    if not 0 <= pattern < 256:
        draw.text((left, top), text, fill=ink, font=font)
        return
    # The font has no braille: the dots are drawn.
    for bit, (x, y) in enumerate(_DOTS):
        if pattern >> bit & 1:
            corner = (left + 1 + 5 * x, top + 1 + 5 * y)
            draw.rectangle((*corner, corner[0] + 2, corner[1] + 2), fill=ink)


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return _NAMED.get(name) or f"#{name}"
