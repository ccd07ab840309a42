"""What devices are drawn with: figures of steady width, lines of parts with roles, severities, curves in braille."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.trainers.contract.events import DeviceSample, HostSample
from tuiapp.trainers.state.readings import FULL_PERCENT, HISTORY
from tuiapp.trainers.state.text import MISSING, bar, format_bytes

NOT_AVAILABLE = "n/a"
SYSTEM_MEMORY = "the system's memory"
"""What is said of a GPU that has no memory of its own."""

_SCALES = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}


def percent(value: float | None) -> str:
    """Formats a percentage in five cells: " 97 %", "100 %"."""
    return f"{value:3.0f} %" if value is not None else f"{NOT_AVAILABLE:>5}"


def share(used: float | None, total: float | None) -> str:
    """Formats both in the unit of the second: "31.2/139 GiB"."""
    if not total:
        return format_bytes(used) if used is not None else NOT_AVAILABLE
    unit = format_bytes(total).split()[1]
    scale = 1024 ** _SCALES[unit]
    return f"{_tenths(used / scale) if used is not None else MISSING}/{_tenths(total / scale)} {unit}"


def _tenths(value: float) -> str:
    return f"{value:.{1 if value < 99.95 else 0}f}"


def watts(sample: DeviceSample, *, limit: bool = True) -> str:
    """Formats power and its limit: "612/700 W"; "" where not available."""
    if sample.power_w is None:
        return ""
    most = f"/{sample.power_limit_w:.0f}" if limit and sample.power_limit_w else ""
    return f"{sample.power_w:3.0f}{most} W"


def cores(percent: float) -> str:
    """Formats per cent of one core as a number of cores, in three significant digits: "0.98", "12.3"."""
    return _three_digits(percent / 100)


def celsius(value: float | None, limit: float | None = None) -> str:
    """Formats a temperature: "64 °C"; with the slowdown temperature: "64/87 °C"; "" where not available."""
    if value is None:
        return ""
    return f"{value:2.0f}{f'/{limit:.0f}' if limit is not None else ''} °C"


def megahertz(value: float | None) -> str:
    """Formats a clock in nine cells: "1,980 MHz"; "" where not available."""
    return f"{value:5,.0f} MHz" if value is not None else ""


def gigabytes(rate: float | None) -> str:
    """Formats traffic of a link in GB/s, in four cells: "1.31", "42.0", " 123"."""
    if rate is None:
        return f"{MISSING:>4}"
    return f"{_three_digits(rate / 1e9):>4}"


def traffic(received: float | None, sent: float | None) -> str:
    """Formats traffic of a link in GB/s: "↓1.31 ↑0.42"; "" where neither is available."""
    if received is None and sent is None:
        return ""
    return f"↓{gigabytes(received)} ↑{gigabytes(sent)}"


def rate(bytes_per_s: float | None) -> str:
    """Formats a rate in at most ten cells: "18.0 KiB/s"."""
    return f"{format_bytes(bytes_per_s)}/s" if bytes_per_s is not None else NOT_AVAILABLE


def network(host: HostSample | None) -> str:
    """Formats a host's network traffic per second in at most 13 cells: "↓1.20G ↑37.5M"; "" where not available."""
    if host is None or host.network_rx_bytes_per_s is None:
        return ""
    return f"↓{_short(host.network_rx_bytes_per_s)} ↑{_short(host.network_tx_bytes_per_s)}"


def _short(count: float | None) -> str:
    """Formats bytes in at most five cells: "37.5M" for MiB."""
    return format_bytes(count).removesuffix("iB").replace(" ", "")


def joules(energy: float | None) -> str:
    """Formats energy in three significant digits: "341 kJ"; "" where not available."""
    if energy is None:
        return ""
    return f"{energy:.0f} J" if abs(energy) < 999.5 else f"{_scaled(energy / 1000, 'kMGT')}J"


def flops(per_second: float | None) -> str:
    """Formats floating point operations per second in three significant digits: "41.3 TFLOP/s"."""
    return f"{_scaled(per_second, ' kMGTP')}FLOP/s" if per_second is not None else MISSING


def _scaled(value: float, prefixes: str) -> str:
    power = 0
    while abs(value) >= 999.5 and power < len(prefixes) - 1:
        value, power = value / 1000, power + 1
    return f"{_three_digits(value)} {prefixes[power].strip()}"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"


class Shade(NamedTuple):
    """A shade is a colour of heat maps."""

    level: int


Role: TypeAlias = Literal["", "bold", "muted", "good", "info", "warning", "error"] | int | Shade
"""A number is the index of one of the run's devices, which has that letter's colour."""


class Span(NamedTuple):
    text: str
    role: Role = ""
    track: bool = False  # a bar, drawn with its full extent


Line: TypeAlias = list[Span]


def line(*parts: str | Span) -> Line:
    """Returns a line of the parts that are not empty."""
    spans = (part if isinstance(part, Span) else Span(part) for part in parts)
    return [span for span in spans if span.text]


def bar_span(percent: float | None, width: int, role: Role) -> Span:
    """Returns a bar of `width` cells; blank where there is no value."""
    return Span(bar(percent / 100 if percent is not None else None, width), role, track=percent is not None)


def bar_row(
    label: Iterable[str | Span],
    value: float | None,
    room: int,
    role: Role,
    *note: str | Span,
    cells: int = 5,
    between: str | Span = " ",
) -> Line:
    """Returns a row of a label, a bar of `room` cells, its value in percent in `cells` cells, and notes."""
    blank = " " if room else ""
    return line(*label, " ", bar_span(value, room, role), blank, f"{percent(value):>{cells}}", between, " ", *note)


def join_fitting(words: Iterable[str], width: int, between: str = " · ") -> str:
    """Joins as many of the words as fit, in order; empty ones are left out."""
    text = ""
    for word in filter(None, words):
        longer = f"{text}{between}{word}" if text else word
        if len(longer) > width:
            break
        text = longer
    return text


def stacked(sections: Iterable[list[Line]]) -> list[Line]:
    """Joins the sections that are not empty, with an empty line between two of them."""
    return [row for section in sections if section for row in ([], *section)][1:]


def beside(lines: Iterable[Line], cells: int, gap: int) -> Line:
    """Joins lines side by side, each in so many cells."""
    return [span for part in lines for span in (*pad(part, cells), Span(" " * gap))][:-1]


def tiled(blocks: Sequence[Sequence[Line]], across: int, cells: int, gap: int) -> list[list[Line]]:
    """Returns rows of `across` blocks side by side, each in so many cells; those of a row are equally high."""
    rows = [blocks[first : first + across] for first in range(0, len(blocks), across)]
    return [[beside(lines, cells, gap) for lines in zip(*row, strict=True)] for row in rows]


def labelled(labels: Iterable[str], lines: Iterable[str], role: Role = "info") -> list[Line]:
    """Returns the lines of a graph, each after its label."""
    return [line(Span(label, "muted"), Span(drawn, role)) for label, drawn in zip(labels, lines, strict=True)]


def plain(spans: Iterable[Span]) -> str:
    """Returns a line as text alone."""
    return "".join(span.text for span in spans)


def pad(spans: Line, width: int) -> Line:
    """Returns a line of exactly `width` cells: padded, or cut with "…"; for characters one cell wide."""
    length = sum(len(span.text) for span in spans)
    if length <= width:
        return [*spans, Span(" " * (width - length))] if length < width else spans
    kept: Line = []
    room = max(0, width - 1)
    for span in spans:
        if len(span.text) >= room:
            return [*kept, Span(span.text[:room] + ("…" if width else ""), span.role, span.track)]
        kept.append(span)
        room -= len(span.text)
    return kept


Level: TypeAlias = Literal["good", "warning", "error"]

HIGH_PERCENT = 90.0

_SIGNS: dict[Level, str] = {"good": " ", "warning": "!", "error": "▲"}


def level(percent: float | None, high: float = HIGH_PERCENT, critical: float = FULL_PERCENT) -> Level:
    """Returns the level of a share; the defaults are those of what fills up, as memory or a disk."""
    if percent is None or percent < high:
        return "good"
    return "warning" if percent < critical else "error"


def sign(of: Level) -> Span:
    """Returns "!" for high and "▲" for critical, in its colour; a blank where all is well."""
    return Span(_SIGNS[of], of)


_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)  # a cell's left column, filled from below to 0 … 4 dots
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = 0x2800
AXIS = ("┤", "│")  # what a label at the left of a graph ends with
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def graph(values: Iterable[float | None], width: int, rows: int, top: float) -> list[str]:
    """Returns `rows` lines of exactly `width` cells, the newest value at the right.

    A value takes a column of dots, or a whole cell where the history would not fill the width; `top` is the full
    height. A value of 0 is a dot, a missing one a gap.
    """
    fits = samples_across(width)
    repeats = 2 * width // fits if fits else 1
    recent = list(values)[-fits:] if fits else []
    dots = [max(value is not None, _dots(value, 4 * rows, top)) for value in recent for _ in range(repeats)]
    dots = [0] * (2 * width - len(dots)) + dots
    pairs = list(zip(dots[::2], dots[1::2], strict=True))
    return ["".join(_cell(left - base, right - base) for left, right in pairs) for base in range(4 * rows - 4, -1, -4)]


def samples_across(width: int) -> int:
    """Returns how many values a graph of `width` cells has."""
    return max(0, 2 * width if 2 * width <= HISTORY else width)


def columns(values: Sequence[float], cells: int, gap: int, rows: int, top: float) -> list[str]:
    """Returns `rows` lines with a column of `cells` cells for each value, `gap` blanks between two of them."""
    eighths = [_dots(value, 8 * rows, top) for value in values]
    return [
        (" " * gap).join(_EIGHTHS[max(0, min(8, height - base))] * cells for height in eighths)
        for base in range(8 * (rows - 1), -1, -8)
    ]


def axis(rows: int, top: str, bottom: str = "0") -> list[str]:
    """Returns the labels at the left of a graph: the ends of its scale."""
    cells = max(len(top), len(bottom))
    if rows == 1:
        return [f"{top:>{cells}}┤"]
    return [f"{top:>{cells}}┤", *[f"{'':>{cells}}│"] * (rows - 2), f"{bottom:>{cells}}┤"]


def _dots(value: float | None, height: int, top: float) -> int:
    return max(0, min(height, round(value / top * height))) if value is not None and top > 0 else 0


def _cell(left: int, right: int) -> str:
    dots = _LEFT[max(0, min(4, left))] + _RIGHT[max(0, min(4, right))]
    return chr(_BRAILLE + dots) if dots else " "
