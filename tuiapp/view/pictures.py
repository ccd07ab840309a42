"""The pictures and texts that a run has logged, drawn: pictures in half blocks, two pixels a cell."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from tuiapp.trainers.contract.events import Media
from tuiapp.trainers.contract.media import decode, read_media
from tuiapp.trainers.state.text import sanitize, sanitize_lines

if TYPE_CHECKING:
    from tuiapp.trainers.contract.media import Pixels

LEAST_WIDTH, LEAST_HEIGHT = 16, 8
"""Cells of one of several pictures."""
GAP = 2
MOST_CAPTION = 3
"""Most lines of a caption."""
BELOW = 3
"""Lines for a picture's name, a caption, and the space to the next."""

Row: TypeAlias = list[Segment]


def draw(directory: Path, items: Sequence[Media], width: int, height: int, *, named: bool = True) -> list[Row]:
    """Draws what lies in a directory: pictures as large as that many cells allow, texts below them.

    Each has its caption under it and, if it is `named`, its name and step.
    """
    rows: list[Row] = []
    images = [item for item in items if item.kind == "image"]
    pictures = [_read(directory, image.file) for image in images]
    shapes = [picture.shape[:2] for picture in pictures if isinstance(picture, np.ndarray)]
    across = _across(shapes, len(images), width, height)
    wide = (width - GAP * (across - 1)) // across
    high = _height(len(images), across, height)
    for start in range(0, len(images), across):
        tiles = []
        for image, pixels in zip(images[start : start + across], pictures[start : start + across], strict=True):
            tile = _written(pixels, wide) if isinstance(pixels, str) else half_blocks(fit(pixels, wide, 2 * high))
            tiles.append([*tile, *_caption(image, wide, named)])
        for parts in zip_longest(*tiles, fillvalue=list[Segment]()):
            padded = [Segment.adjust_line_length(part, wide, Style.null()) for part in parts]
            rows.append([segment for part in padded for segment in (*part, Segment(" " * GAP))])
        rows.append([])
    for text in (item for item in items if item.kind == "text"):
        rows += [*_caption(text, width, named), *_written(_text(directory, text.file), width), []]
    return rows[:-1]


def half_blocks(pixels: Pixels) -> list[Row]:
    """Draws each pixel, uint8 [H, W, 3], as half a cell."""
    rows = []
    for top in range(0, len(pixels), 2):
        cells = np.concatenate(pixels[top : top + 2], axis=1).tolist()
        rows.append([Segment("▀" * len([*same]), _style(colors)) for colors, same in groupby(cells)])
    return rows


def _style(colors: list[int]) -> Style:
    return Style.from_color(Color.from_rgb(*colors[:3]), Color.from_rgb(*colors[3:]) if colors[3:] else None)


def fit(pixels: Pixels, width: int, height: int) -> Pixels:
    """Returns a picture, [H, W] or [H, W, 3], in RGB and at most so large: whole pixels, or means of several."""
    if pixels.ndim == 2:
        pixels = pixels[..., None].repeat(3, 2)
    high, wide = pixels.shape[:2]
    scale = min(width / wide, height / high)
    if scale >= 1:
        return pixels.repeat(int(scale), 0).repeat(int(scale), 1)
    rows, columns = max(1, int(high * scale)), max(1, int(wide * scale))
    down, across = np.arange(rows) * high // rows, np.arange(columns) * wide // columns
    sums = np.add.reduceat(np.add.reduceat(pixels.astype(np.float32), down, 0), across, 1)
    counts = np.outer(np.diff(down, append=high), np.diff(across, append=wide))
    return (sums / counts[..., None]).astype(np.uint8)


def _across(shapes: Sequence[tuple[int, ...]], count: int, width: int, height: int) -> int:
    """Returns how many pictures stand side by side so that they are the largest."""

    def size(across: int) -> float:
        wide, high = (width - GAP * (across - 1)) // across, _height(count, across, height)
        return sum(min(wide / w, 2 * high / h) for h, w in shapes)

    most = max(1, min(count, (width + GAP) // (LEAST_WIDTH + GAP)))
    return max(range(1, most + 1), key=lambda across: (size(across), across))


def _height(count: int, across: int, height: int) -> int:
    """Returns the lines that each of `count` pictures has."""
    return max(LEAST_HEIGHT, height // max(1, -(-count // across)) - BELOW)


def _caption(item: Media, width: int, named: bool) -> list[Row]:
    rank = f"  rank {item.rank}" if item.rank else ""
    title = [Segment(sanitize(item.name), Style(bold=True)), Segment(f"  step {item.step:,}{rank}")]
    return [*([title] if named else []), *_written(item.caption, width)[:MOST_CAPTION]]


def _written(text: str, width: int) -> list[Row]:
    """Returns a text's lines, those that are too long on several."""
    lines = (part for line in sanitize_lines(text) for part in textwrap.wrap(line, width) or [""])
    return [[Segment(line)] for line in lines]


def _text(directory: Path, file: str) -> str:
    try:
        return read_media(directory, file).decode(errors="replace")
    except OSError:
        return "The file is not here."


def _read(directory: Path, file: str) -> Pixels | str:
    """Returns a picture's pixels, or why there are none."""
    try:
        status = os.stat(directory / Path(file).name)
        return _decoded(directory, file, status.st_mtime_ns, status.st_size)
    except ValueError as error:
        return str(error)
    except OSError:
        return "The file is not here."


@lru_cache(64)
def _decoded(directory: Path, file: str, _mtime_ns: int, _size: int) -> Pixels:
    return decode(read_media(directory, file))
