"""Colours that people with colour blindness can distinguish, and the styles of severities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Imports numpy, which not every screen needs.
    from tuiapp.state.condition import Severity

# Okabe & Ito, "Color Universal Design" (2008), ordered to keep neighbours distinct on each background.
_ON_DARK = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
_ON_LIGHT = ("#005F99", "#B34700", "#00735A", "#9E4A7D", "#1F87BF", "#946300", "#6E6600", "#555555")
"""The same hues, darkened to a contrast of at least 3:1 on a light background."""

BAND_COLOR = "#808080"
"""For the min–max band of the ranks, on dark and on light backgrounds."""

MUTED = "$text-muted"

SEVERITY_STYLES: dict[Severity, str] = {
    "good": "$text-success",
    "info": MUTED,
    "warning": "bold $text-warning",
    "error": "bold $text-error",
}


def series_color(index: int, *, dark: bool) -> str:
    """Returns the colour of a rank's curve or of a device as "#RRGGBB"; repeats after seven."""
    colors = _ON_DARK if dark else _ON_LIGHT
    return colors[index % len(colors)]


def faint(color: str, *, dark: bool) -> str:
    """Returns a "#RRGGBB" colour nearer to a dark or a light background."""
    behind = 0x12 if dark else 0xFF
    return "#" + "".join(f"{round(0.45 * part + 0.55 * behind):02X}" for part in to_rgb(color))


def text_on(color: str) -> str:
    """Returns black or white, whichever has more contrast on a "#RRGGBB" colour."""
    red, green, blue = ((part / 255) ** 2.2 for part in to_rgb(color))
    # Above this luminance black has more contrast, in WCAG's sense, than white.
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "white"


def to_rgb(color: str) -> tuple[int, int, int]:
    """Converts a "#RRGGBB" colour to three numbers."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
