"""A screen as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyte
from PIL import Image, ImageDraw, ImageFont

from tests.kit.screen_text import DEFAULT, Cell, Look

FONT, BOLD = "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"
FONT_SIZE = 16
WIDTH, HEIGHT = 10, 20
"""Of a cell, in pixels."""

FOREGROUND, BACKGROUND = "#e0e0e0", "#121212"
"""What stands for the terminal's own colours."""

_NAMED = {
    "black": "#000000", "red": "#cd3131", "green": "#0dbc79", "brown": "#e5e510",
    "blue": "#2472c8", "magenta": "#bc3fbc", "cyan": "#11a8cd", "white": "#e5e5e5",
}  # fmt: skip
# Where each bit of a braille character stands: column, row.
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


def save(rows: Sequence[Sequence[Cell]], path: Path) -> None:
    """Write a screen as PNG.

    Raises:
        OSError: the font is not installed (Debian: fonts-dejavu-core).
    """
    # Text in a few colours: a palette makes the file a third as large, and nothing is seen of it.
    _image(rows).quantize(128).save(path, optimize=True)


def save_moving(screens: Sequence[tuple[Sequence[Sequence[Cell]], int]], path: Path) -> None:
    """Write screens, each with the milliseconds it stays, as an animated GIF that begins anew.

    Raises:
        OSError: the font is not installed (Debian: fonts-dejavu-core).
    """
    images = [_image(rows) for rows, _ in screens]
    # One palette for all: what stays as it is takes no room.
    together = Image.new("RGB", (images[0].width, 2 * images[0].height))
    together.paste(images[0])
    together.paste(images[-1], (0, images[0].height))
    palette = together.quantize(64)
    first, *rest = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    first.save(path, append_images=rest, save_all=True, duration=[stays for _, stays in screens], loop=0, optimize=True)


def _image(rows: Sequence[Sequence[Cell]]) -> Image.Image:
    fonts = ImageFont.truetype(FONT, FONT_SIZE), ImageFont.truetype(BOLD, FONT_SIZE)
    image = Image.new("RGB", (max(map(len, rows)) * WIDTH, len(rows) * HEIGHT), BACKGROUND)
    draw = ImageDraw.Draw(image)
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            _draw(draw, cell, column * WIDTH, row * HEIGHT, fonts)
    return image


def cells_of(screen: pyte.Screen) -> list[list[Cell]]:
    """The cells of an emulated terminal."""
    return [[_cell(screen.buffer[row][column]) for column in range(screen.columns)] for row in range(screen.lines)]


def _cell(char: pyte.screens.Char) -> Cell:
    set_ones = {
        "bold": char.bold,
        "italic": char.italics,
        "underline": char.underscore,
        "strike": char.strikethrough,
        "reverse": char.reverse,
    }
    foreground, background = (n if n == DEFAULT or n in _NAMED else f"#{n}" for n in (char.fg, char.bg))
    return Cell(char.data, Look(foreground, background, frozenset(n for n, is_set in set_ones.items() if is_set)))


def _draw(
    draw: ImageDraw.ImageDraw, cell: Cell, left: int, top: int, fonts: tuple[ImageFont.FreeTypeFont, ...]
) -> None:
    attributes = cell.look.attributes
    ink = _colour(cell.look.foreground, FOREGROUND)
    paper = _colour(cell.look.background, BACKGROUND)
    if "reverse" in attributes:
        ink, paper = paper, ink
    if cell.text:
        # A wide character's second cell has no ground of its own: it would hide half of the first.
        draw.rectangle((left, top, left + WIDTH - 1, top + HEIGHT - 1), fill=paper)
    if cell.text.strip():
        _draw_character(draw, cell.text, left, top, ink, fonts["bold" in attributes])
    for name, line in (("underline", top + HEIGHT - 2), ("strike", top + HEIGHT // 2)):
        if name in attributes:
            draw.line((left, line, left + WIDTH - 1, line), fill=ink)


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
    if name == DEFAULT:
        return default
    return _NAMED.get(name) or name
