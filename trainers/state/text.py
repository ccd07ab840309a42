"""Formats numbers, times and foreign text for the screen."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from tuiapp.trainers.config.script_syntax import ESCAPES

MISSING = "–"  # where there is no value; never a 0 that nobody measured
MAX_LINE_CHARACTERS = 2000

_TAB = "    "
_DROPPED = dict.fromkeys(
    [
        *range(0x20),  # C0
        *range(0x7F, 0xA0),  # DEL and C1
        0x00AD,  # soft hyphen
        0x061C,
        *range(0x200B, 0x2010),  # zero-width characters and direction marks
        *range(0x202A, 0x202F),  # direction embeddings and overrides
        *range(0x2060, 0x2070),  # invisible operators and direction isolates
        *range(0xD800, 0xE000),  # lone surrogates: no terminal encoding has them
        *range(0xFE00, 0xFE10),  # variation selectors: terminals differ in how wide a sign is that asks for a picture
        0xFEFF,
        *range(0xFFF9, 0xFFFC),
        *range(0xE0000, 0xE0080),  # tags
    ]
)
_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
"""Bytes of paths that are no UTF-8, as Python has them in text."""
_CLEAN: dict[int, str | None] = {
    **_DROPPED,
    **_BYTES,
    0x09: _TAB,
    0x0A: " ",
    0x0B: " ",
    0x0C: " ",
    0x2028: " ",
    0x2029: " ",
}

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def sanitize(text: str, limit: int = MAX_LINE_CHARACTERS) -> str:
    r"""Returns one line of text that cannot affect the terminal.

    Escape sequences, control, direction and invisible characters are dropped, a tab becomes spaces, a line break a
    space. Of a progress bar, which returns to the line's start with `\r`, what was written last is kept. Longer text is
    cut to `limit` characters, ending in "…".
    """
    # Text beyond the limit is cut anyway and need not be cleaned.
    text = text[: 16 * limit]
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if not (text.isascii() and text.isprintable()):
        text = ESCAPES.sub("", text).translate(_CLEAN)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def sanitize_lines(text: str, limit: int = 200) -> list[str]:
    """Sanitizes text of several lines, such as a traceback; of a long one the first and the last lines are kept."""
    lines = [sanitize(line).rstrip() for line in text.strip("\n").split("\n")]
    if len(lines) > limit:
        head = limit // 2
        cut = len(lines) - limit + 1
        lines = [*lines[:head], f"… {cut:,} lines omitted …", *lines[len(lines) - (limit - head - 1) :]]
    return lines


def format_duration(seconds: float | None) -> str:
    """Formats a duration in its two largest units: "4s", "1m 03s", "2h 05m", "3d 04h"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    total = max(0, int(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m {total % 60:02}s"
    if total < 86400:
        return f"{total // 3600}h {total % 3600 // 60:02}m"
    return f"{total // 86400}d {total % 86400 // 3600:02}h"


def format_count(value: float | None) -> str:
    """Formats a number with thousands separators; one decimal below 100 unless it is whole."""
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) < 99.95 and value != int(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def format_rate(value: float | None) -> str:
    """Formats a rate in a steady width: one decimal below 100, thousands separators above."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:,.0f}"


def format_metric(value: float | None) -> str:
    """Formats a metric in at most seven characters, four of them significant."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "−inf"
    size = abs(value)
    if size != 0 and (size < 0.001 or size >= 100_000):
        return f"{value:.1e}"
    digits = 4 if size < 1 else 3 if size < 10 else 2 if size < 100 else 1
    return f"{value:.{digits}f}"


def in_json(value: object) -> object:
    """Returns a number as JSON can hold it, which knows neither NaN nor infinities: "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def format_percent(fraction: float | None, decimals: int = 0) -> str:
    """Formats a fraction in per cent: "86.1 %"."""
    if fraction is None or not math.isfinite(fraction):
        return MISSING
    return f"{100 * fraction:.{decimals}f} %"


def progress_bar(fraction: float, cells: int) -> str:
    """Returns a bar of `cells` cells."""
    full = int(fraction * cells)
    tip = "╸" if full < cells and fraction * cells - full >= 0.5 else ""
    return "━" * full + tip + "─" * (cells - full - len(tip))


def format_bytes(count: float | None) -> str:
    """Formats a number of bytes in three significant digits: "512 B", "31.2 GiB"."""
    if count is None or not math.isfinite(count):
        return MISSING
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    if units[0] == "B":
        return f"{value:.0f} B"
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {units[0]}"


def format_seconds(seconds: float | None) -> str:
    """Formats the time of a step or an epoch: "85 µs", "27.8 ms", "1.42 s", "312 s"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.{1 if seconds < 0.1 else 0}f} ms"
    return f"{seconds:,.{2 if seconds < 9.995 else 1 if seconds < 99.95 else 0}f} s"


def format_fact(value: object) -> str:
    """Formats what a script says of its run: text as it is, another value as JSON."""
    return sanitize(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 200)


def format_clock(moment: float) -> str:
    """Formats seconds since the epoch as local time of day."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(moment))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"


def bar(fraction: float | None, width: int) -> str:
    """Returns a bar of exactly `width` cells, filled by eighths."""
    if fraction is None or not math.isfinite(fraction):
        return " " * width
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def sparkline(values: Sequence[float | None], width: int, top: float) -> str:
    """Returns the last values as a line of exactly `width` cells; `top` is full height."""
    recent = values[-width:] if width > 0 else []
    cells = [
        " " if value is None else _LEVELS[min(7, max(0, int(value / top * 8)))] if top > 0 else _LEVELS[0]
        for value in recent
    ]
    return "".join(cells).rjust(width)


def fit(text: str, width: int) -> str:
    """Returns text in exactly `width` cells, cut with "…" or padded; for characters one cell wide."""
    if len(text) > width:
        return text[: width - 1] + "…" if width > 0 else ""
    return text.ljust(width)


def format_path(path: PurePath) -> str:
    """Formats a path for a shell, with ~ for the user's home."""
    home = os.path.expanduser("~")
    text = str(path)
    return sanitize(f"~{text[len(home) :]}" if home != "/" and text.startswith(f"{home}/") else text)


MOST_RANGES = 8


def format_ranges(numbers: Sequence[int]) -> str:
    """Formats ascending numbers: "0–31, 33"; of many ranges, how many more there are."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    shown = ", ".join("–".join(map(str, span)) for span in ranges[:MOST_RANGES])
    return f"{shown} and {len(ranges) - MOST_RANGES} more" if ranges[MOST_RANGES:] else shown


def without_directories(value: str) -> str:
    """Returns a configuration's value without the directories of its path: "npz:mine.npz", "net.py:Net"."""
    prefix, colon, _ = value.partition(":")
    if not colon:
        return value
    name = value.rpartition("/")[2] if "/" in value else value.removeprefix(f"{prefix}:")
    return name if prefix == "py" else f"{prefix}:{name}"


def plural(count: int, noun: str) -> str:
    """Returns a count with its noun: "1 rank", "1,024 ranks"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_words(parts: Iterable[str]) -> str:
    """Joins the parts that are not empty with a middle dot."""
    return " · ".join(part for part in parts if part)
