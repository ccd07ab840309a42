"""Lines of `tuiapp.state.devices.spans` in a theme's colours."""

from __future__ import annotations

from textual.content import Content

from tuiapp.state.devices.spans import Line, Span
from tuiapp.state.palette import series_color
from tuiapp.widgets.colors import MUTED, SEVERITY_STYLES


def styled(spans: Line, *, dark: bool) -> Content:
    """Returns a line for a dark or light theme."""
    return Content.assemble(*((span.text, _style(span, dark)) for span in spans))


def _style(span: Span, dark: bool) -> str:
    role = span.role
    if isinstance(role, int):
        color = series_color(role, dark=dark)
        style = f"bold {color}" if span.text.isalpha() else color
    elif role in ("good", "warning", "error"):
        style = SEVERITY_STYLES[role]
    else:
        style = {"": "", "bold": "bold", "muted": MUTED, "info": "$primary"}[role]
    return f"{style} on $foreground 12%" if span.track else style
