"""The keys to zoom, pan and read a chart, the same on every screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.binding import Binding, BindingType

from tuiapp.widgets.zoomable import Zoomable

FAR_CELLS = 10
"""Cells that shift moves the cursor by."""


def view_keys(screen: str, *, show: bool) -> list[BindingType]:
    """Returns bindings of the action `chart`; `screen` prefixes their ids, `show` puts the main ones in the footer."""
    return [
        Binding("v", "chart('cursor')", "Values", tooltip="Read values", id=f"{screen}.read-values", show=show),
        Binding(
            "plus,equals_sign",
            "chart('in')",
            "Zoom",
            tooltip="Zoom in",
            id=f"{screen}.zoom-in",
            key_display="+",
            show=show,
        ),
        Binding("minus", "chart('out')", "Zoom out", id=f"{screen}.zoom-out", key_display="-", show=False),
        Binding("0", "chart('whole')", "Whole run", id=f"{screen}.whole-run", show=False),
        Binding("left", "chart('left')", "Earlier", id=f"{screen}.earlier", show=False),
        Binding("right", "chart('right')", "Later", id=f"{screen}.later", show=False),
        Binding("shift+left", "chart('far_left')", "Much earlier", id=f"{screen}.much-earlier", show=False),
        Binding("shift+right", "chart('far_right')", "Much later", id=f"{screen}.much-later", show=False),
    ]


def view_actions(active: Callable[[], Zoomable]) -> dict[str, Callable[[], None]]:
    """Returns the function of each argument of the action `chart`, for the chart that `active` returns."""

    def whole() -> None:
        active().window = None

    return {
        "cursor": lambda: active().toggle_cursor(),
        "in": lambda: active().zoom(1),
        "out": lambda: active().zoom(-1),
        "whole": whole,
        "left": lambda: active().move(-1),
        "right": lambda: active().move(1),
        "far_left": lambda: active().move(-FAR_CELLS),
        "far_right": lambda: active().move(FAR_CELLS),
    }
