"""Colours and styles: of bands, of severities, of what can be read on a colour, of drawn lines and what is selected."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from tuiapp.view.devices.drawing import Shade
from tuiapp.view.marks import heat_color, series_color

if TYPE_CHECKING:
    from tuiapp.trainers.state.signs import Severity
    from tuiapp.view.devices.drawing import Line, Span

BAND_COLOR = "#808080"
"""For the min–max band of the ranks, on dark and on light backgrounds."""

MUTED = "$text-muted"

TONES = {
    "good": "$text-success",
    "info": MUTED,
    "live": "$text-primary",
    "warning": "$text-warning",
    "error": "$text-error",
}

SEVERITY_STYLES: dict[Severity, str] = {
    "good": TONES["good"],
    "info": TONES["info"],
    "warning": f"bold {TONES['warning']}",
    "error": f"bold {TONES['error']}",
}


def faint(color: str, *, dark: bool) -> str:
    """Returns a "#RRGGBB" colour nearer to a dark or a light background."""
    behind = 0x12 if dark else 0xFF
    return "#" + "".join(f"{round(0.45 * part + 0.55 * behind):02X}" for part in to_rgb(color))


def text_on(color: str) -> str:
    """Returns black or white, whichever has more contrast on a "#RRGGBB" colour."""
    red, green, blue = ((part / 255) ** 2.2 for part in to_rgb(color))
    # Above this luminance black has more contrast, in WCAG's sense, than white.
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "white"


def heat_colors(level: int, *, dark: bool) -> tuple[str, str]:
    """Returns the colours of the character in a cell of a heat map, and of the cell: one, where colours are wanted."""
    color = heat_color(level, dark=dark)
    # The program leaves it in place for its children.
    return text_on(color) if "NO_COLOR" in os.environ else color, color


def to_rgb(color: str) -> tuple[int, int, int]:
    """Converts a "#RRGGBB" colour to three numbers."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def styled(spans: Line, *, dark: bool) -> Content:
    """Returns a line for a dark or light theme."""
    return Content.assemble(*((span.text, _style(span, dark)) for span in spans))


def _style(span: Span, dark: bool) -> str:
    role = span.role
    if isinstance(role, int):
        color = series_color(role, dark=dark)
        style = f"bold {color}" if span.text.isalpha() else color
    elif isinstance(role, Shade):
        style = " on ".join(heat_colors(role.level, dark=dark))
    elif role in ("good", "warning", "error"):
        style = SEVERITY_STYLES[role]
    else:
        style = {"": "", "bold": "bold", "muted": MUTED, "info": "$primary"}[role]
    return f"{style} on $foreground 12%" if span.track else style


def mark_selection(widget: Widget, strip: Strip, line: int) -> Strip:
    """Styles the selected part of a widget's line, and makes all of it selectable."""
    selection = widget.text_selection
    if selection is not None and (span := selection.get_span(line)) is not None:
        # Textual counts characters; -1 is the line's end.
        start, end = (cell_len(strip.text[: index if index >= 0 else None]) for index in span)
        style = widget.screen.get_component_rich_style("screen--selection")
        chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
        strip = Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
    return strip.apply_offsets(0, line)
