"""Colours that people with colour blindness can tell apart, and the styles of severities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # It brings numpy with it, which not every screen needs.
    from tuiapp.state.condition import Severity

# Okabe & Ito, "Color Universal Design" (2008); in the order that keeps neighbours apart on each background.
_ON_DARK = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
_ON_LIGHT = ("#005F99", "#B34700", "#00735A", "#9E4A7D", "#1F87BF", "#946300", "#6E6600", "#555555")
"""The same hues, as much darker as a light ground asks for: 3 to 1 at least."""

BAND_COLOR = "#808080"
"""From the least to the greatest of the ranks: behind their mean, on dark and on light."""

MUTED = "$text-muted"
"""For what matters less."""

SEVERITY_STYLES: dict[Severity, str] = {
    "good": "$text-success",
    "info": MUTED,
    "warning": "bold $text-warning",
    "error": "bold $text-error",
}


def series_color(index: int, *, dark: bool) -> str:
    """The colour of a rank's curve or of a device, as "#RRGGBB"; the eighth and later ones come around again."""
    colors = _ON_DARK if dark else _ON_LIGHT
    return colors[index % len(colors)]


def text_on(color: str) -> str:
    """Black or white: whichever reads better on a "#RRGGBB" colour."""
    red, green, blue = ((part / 255) ** 2.2 for part in to_rgb(color))
    # Above this luminance black has more contrast, in WCAG's sense, than white.
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "white"


def to_rgb(color: str) -> tuple[int, int, int]:
    """A "#RRGGBB" colour as three numbers."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
