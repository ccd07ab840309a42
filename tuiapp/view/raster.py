"""A chart's curves as terminal cells: braille dots, two across and four down in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuiapp.trainers.state.series import Floats
from tuiapp.view.chart import BAND, Chart, Curve
from tuiapp.view.heat import APART, BROKEN, CELL_GLYPHS, EMPTY, Heat, levels

EVALUATION_CELLS = 3  # least distance between two evaluation marks
MARK = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))  # dots of a mark, down and across
NONE, EVALUATION, GAP, CURSOR = -10, -2, -3, -4  # inks besides `BAND` and the palette indices, which are ≥ 0
HEAT = 1000  # ink of the least level of a heat map; the next ones follow
RAW = -100  # ink of the curve with palette index 0 before it was smoothed; that of index 1 is one less
DASH_CELLS = 2  # length in which curves that coincide take turns
TOLERANCE = 0.01  # of a dot
QUARTER = np.uint8(0x05)  # bits of a cell's dots in every second row and column: areas, beneath which lines are seen
DOTTED = np.uint8(0x47)  # bits of its dots in every second column
_DOTS = np.array(
    [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint8
)  # Unicode's bit of each dot in a cell


@dataclass(slots=True)
class Cells:
    characters: NDArray[np.uint32]  # code points [rows, columns]
    inks: NDArray[np.int16]  # [rows, columns]: palette index, `BAND`, one of the inks above, or `RAW` - palette index


def rasterize(chart: Chart, columns: int, rows: int, cursor: int | None = None) -> Cells:
    """Draws a chart, which has two values per curve and cell column.

    `cursor` is the cell column of a cursor line; the rows of a heat map have their values beside it.
    """
    if chart.heat is not None:
        return _rasterize_heat(chart.heat, chart, columns, rows, cursor)
    bits = np.zeros((rows, columns), np.uint8)
    inks = np.full((rows, columns), NONE, np.int16)
    height = 4 * rows

    def filled(curve: Curve) -> NDArray[np.uint8]:
        return _pack(_between(*_spans(curve, chart, height), height), rows, columns)

    areas = [(chart.band, BAND)] if chart.band is not None else []
    for curve, ink in [*areas, *((curve, RAW - curve.color) for curve in chart.bands)]:
        drawn = filled(curve) & QUARTER
        inks[drawn > 0] = ink
        bits |= drawn
    for curve in chart.raw:
        drawn = filled(curve) & DOTTED
        here = drawn > 0
        bits[here], inks[here] = drawn[here], RAW - curve.color
    if lines := _lines(chart):
        _draw_lines(bits, inks, [filled(curve) for curve, _ in lines], [ink for _, ink in lines])
    _mark_evaluations(bits, inks, chart)
    characters = np.where(bits > 0, bits + np.uint32(0x2800), np.uint32(ord(" "))).astype(np.uint32)
    if cursor is not None and 0 <= cursor < columns:
        free = characters[:, cursor] == ord(" ")
        characters[free, cursor], inks[free, cursor] = ord("│"), CURSOR
    if len(chart.curves) > 1:
        _label(characters, inks, chart)
    _mark(characters, inks, chart)
    below, above = chart.clipped
    if below is not None:
        _mark_clipped(characters[-1], inks[-1], chart, above=False)
    if above is not None:
        _mark_clipped(characters[0], inks[0], chart, above=True)
    return Cells(characters, inks)


def first_lines(heat: Heat, lines: int) -> list[int]:
    """Returns the first of the `lines` of each row of a heat map, all equally high, and the end of the last."""
    height = lines // len(heat.rows)
    return [lines - place * height for place in range(len(heat.rows), -1, -1)]


def _rasterize_heat(heat: Heat, chart: Chart, columns: int, rows: int, cursor: int | None) -> Cells:
    starts = first_lines(heat, rows)
    values = np.full((len(heat.rows), columns), np.nan)
    for of_row, row in zip(values, heat.rows, strict=True):
        of_row[: len(row.values)] = row.values[:columns]
    drawn = np.full((rows, columns), EMPTY, np.int16)
    drawn[starts[0] :] = np.repeat(levels(values, *chart.y_range), np.diff(starts), axis=0)
    if starts[1] - starts[0] >= APART:
        drawn[np.array(starts[1:]) - 1] = EMPTY
    characters = np.array(list(map(ord, CELL_GLYPHS)), np.uint32)[drawn]
    inks = np.where(drawn == EMPTY, NONE, np.where(drawn == BROKEN, GAP, drawn + HEAT)).astype(np.int16)
    if cursor is not None and 0 <= cursor < columns and starts[0] < rows:
        characters[:, cursor], inks[:, cursor] = ord("│"), CURSOR
        for line, value in zip(starts, values[:, cursor].tolist(), strict=False):
            text = heat.words(value, log=chart.log)
            start = cursor + 1 if cursor + len(text) < columns else max(0, cursor - len(text))
            cells = slice(start, start + len(text))
            characters[line, cells], inks[line, cells] = list(map(ord, text[: columns - start])), CURSOR
    return Cells(characters, inks)


def _lines(chart: Chart) -> list[tuple[Curve, int]]:
    """Returns the curves that are drawn as solid lines, with their inks."""
    lines = [(curve, curve.color) for curve in chart.curves]
    return lines if chart.evaluation_line is None else [*lines, (chart.evaluation_line, EVALUATION)]


def _draw_lines(
    bits: NDArray[np.uint8], inks: NDArray[np.int16], lines: list[NDArray[np.uint8]], line_inks: list[int]
) -> None:
    """Draws lines over what is there; those that share cells have them in turns, as dashes of each."""
    drawn = np.stack(lines)
    here = drawn > 0
    number = here.cumsum(axis=0, dtype=np.uint8)
    dash = (np.arange(bits.shape[1]) // DASH_CELLS).astype(np.uint8)
    turn = dash % np.maximum(number[-1], 1) + 1
    np.copyto(bits, np.bitwise_or.reduce(drawn), where=number[-1] > 0)
    for ink, cells in zip(line_inks, here & (number == turn), strict=True):
        inks[cells] = ink


def _label(characters: NDArray[np.uint32], inks: NDArray[np.int16], chart: Chart) -> None:
    rows, columns = characters.shape
    low, high = chart.y_range
    for curve in chart.curves:
        filled = np.flatnonzero(~np.isnan(curve.middle))
        if not len(filled):
            continue
        row = round(float((high - curve.middle[filled[-1]]) / (high - low) * (4 * rows - 1))) // 4
        column = int(filled[-1]) // 2 + 1
        # Lines that end at the same place have their names side by side.
        while column < columns and characters[row, column] != ord(" "):
            column += 1
        cells = slice(column, column + len(curve.label))
        if 0 <= row < rows and cells.stop <= columns:
            characters[row, cells] = [ord(letter) for letter in curve.label]
            inks[row, cells] = curve.color


def _mark_evaluations(bits: NDArray[np.uint8], inks: NDArray[np.int16], chart: Chart) -> None:
    across, down = 2 * bits.shape[1], 4 * bits.shape[0]
    (left, right), (low, high) = chart.x_range, chart.y_range
    right_of = across
    marked: list[tuple[int, int]] = []
    for x, y in chart.evaluations:
        column = round((x - left) / (right - left) * (across - 1))
        row = round((high - y) / (high - low) * (down - 1) - TOLERANCE)
        # The newest come first; where they are dense, the curve must remain visible.
        if not 0 <= row < down or not 0 <= column < across or column > right_of:
            continue
        right_of = column - 2 * EVALUATION_CELLS
        marked += [(row + by_row, column + by_column) for by_row, by_column in MARK]
    if not marked:
        return
    dots = np.array(marked)
    dots = dots[((dots >= 0) & (dots < (down, across))).all(axis=1)]
    cells = dots[:, 0] // 4, dots[:, 1] // 2
    np.bitwise_or.at(bits, cells, _DOTS[dots[:, 0] % 4, dots[:, 1] % 2])
    inks[cells] = EVALUATION


def _mark(characters: NDArray[np.uint32], inks: NDArray[np.int16], chart: Chart) -> None:
    rows, columns = characters.shape
    low, high = chart.y_range
    for dot, y, character, color in chart.marks:
        row = round((high - y) / (high - low) * (4 * rows - 1)) // 4
        if 0 <= row < rows and 0 <= dot // 2 < columns:
            characters[row, dot // 2], inks[row, dot // 2] = ord(character), color
    for dot in chart.gaps:
        if dot // 2 < columns:
            characters[0, dot // 2], inks[0, dot // 2] = ord("✕"), GAP


def _mark_clipped(characters: NDArray[np.uint32], inks: NDArray[np.int16], chart: Chart, *, above: bool) -> None:
    """Marks in the first or last row of cells where each curve comes from above or below the axis."""
    low, high = chart.y_range
    for curve, ink in _lines(chart):
        outside = np.flatnonzero(curve.high > high if above else curve.low < low)
        if len(outside):
            column = int(outside[-1]) // 2
            characters[column], inks[column] = ord("↑" if above else "↓"), ink


def _spans(curve: Curve, chart: Chart, height: int) -> tuple[Floats, Floats]:
    """Returns the top and bottom dot of each column, so that neighbouring columns touch."""
    low, high = chart.y_range
    scale = (height - 1) / (high - low)
    # A constant, up to `SAME`, is halfway between two dots: it must not jump.
    top, bottom = ((high - values) * scale - TOLERANCE for values in (curve.high, curve.low))
    filled = np.flatnonzero(~np.isnan(top) & ~np.isnan(bottom))
    if not len(filled):
        return top, bottom
    every = np.arange(len(top))
    inside = (every >= filled[0]) & (every <= filled[-1])
    apart = np.zeros(len(top), bool)  # columns that are not joined to the previous one
    for broken in np.flatnonzero(curve.breaks > 0):
        after = int(np.searchsorted(filled, broken, side="right"))
        start = filled[after - 1] + 1 if after else 0
        stop = filled[after] if after < len(filled) else len(top)
        inside[start:stop] = False
        if stop < len(top):
            apart[stop] = True
    top = np.where(inside, np.rint(np.interp(every, filled, top[filled])), np.nan)
    bottom = np.where(inside, np.rint(np.interp(every, filled, bottom[filled])), np.nan)
    # Where one column ends above the next one's start, both are extended to the middle between them.
    with np.errstate(invalid="ignore"):
        falls = (top[1:] > bottom[:-1] + 1) & ~apart[1:]
        middle = np.floor((bottom[:-1] + top[1:]) / 2)
        rises = (top[:-1] > bottom[1:] + 1) & ~apart[1:]
        other = np.floor((top[:-1] + bottom[1:]) / 2)
    new_top, new_bottom = top.copy(), bottom.copy()
    new_bottom[:-1][falls] = middle[falls]
    new_top[1:][falls] = middle[falls] + 1
    new_top[:-1][rises] = np.minimum(new_top[:-1], other + 1)[rises]
    new_bottom[1:][rises] = np.maximum(new_bottom[1:], other)[rises]
    return new_top, new_bottom


def _between(top: Floats, bottom: Floats, height: int) -> NDArray[np.bool_]:
    row = np.arange(height, dtype=np.int16)[:, None]
    first, last = (
        np.clip(np.where(np.isnan(ends), none, ends), -1, height).astype(np.int16)
        for ends, none in ((top, height), (bottom, -1))
    )
    between: NDArray[np.bool_] = (row >= first) & (row <= last)
    return between


def _pack(dots: NDArray[np.bool_], rows: int, columns: int) -> NDArray[np.uint8]:
    padded = np.zeros((4 * rows, 2 * columns), np.uint8)
    padded[:, : dots.shape[1]] = dots[:, : 2 * columns]
    cells = padded.reshape(rows, 4, columns, 2)
    packed = np.zeros((rows, columns), np.uint8)
    for down, across in np.ndindex(_DOTS.shape):
        packed |= cells[:, down, :, across] * _DOTS[down, across]
    return packed
