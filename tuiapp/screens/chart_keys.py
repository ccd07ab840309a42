"""The keys by which a chart is looked into: the same wherever there is one."""

from __future__ import annotations

from collections.abc import Callable

from textual.binding import Binding, BindingType

from tuiapp.widgets.zoomable import Zoomable

FAR_CELLS = 10
"""How far the cursor goes with shift."""


def view_keys(screen: str, *, show: bool) -> list[BindingType]:
    """Keys to zoom, to pan, and to read values; their action is `chart`.

    Args:
        screen: What the keys' names begin with.
        show: Whether the footer tells the foremost of them.
    """
    return [
        Binding("v", "chart('cursor')", "Read values", id=f"{screen}.read-values", show=show),
        Binding("plus,equals_sign", "chart('in')", "Zoom in", id=f"{screen}.zoom-in", key_display="+", show=show),
        Binding("minus", "chart('out')", "Zoom out", id=f"{screen}.zoom-out", key_display="-", show=False),
        Binding("0", "chart('whole')", "Whole run", id=f"{screen}.whole-run", show=False),
        Binding("left", "chart('left')", "Earlier", id=f"{screen}.earlier", show=False),
        Binding("right", "chart('right')", "Later", id=f"{screen}.later", show=False),
        Binding("shift+left", "chart('far_left')", "Much earlier", id=f"{screen}.much-earlier", show=False),
        Binding("shift+right", "chart('far_right')", "Much later", id=f"{screen}.much-later", show=False),
    ]


def view_actions(active: Callable[[], Zoomable]) -> dict[str, Callable[[], None]]:
    """What those keys do.

    Args:
        active: Gives the chart that they act on.
    """

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
