"""Which of the Run screen's panels are on show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.screen import Screen
from textual.widget import Widget

from tuiapp.widgets.panel_tabs import PanelTabs


def arrange(screen: Screen[Any], panels: Sequence[str], *, failed: bool, chosen: str, single: bool) -> None:
    """Show all panels, or one, with the containers around it.

    Args:
        screen: Where they are, with tabs for them.
        panels: Their ids; the last one is for a failure.
        failed: Whether there is a failure to show.
        chosen: The panel that gets all the room; "" for none.
        single: There is room for one at a time only.
    """
    names = panels if failed else panels[:-1]
    shown = chosen or ((names[-1] if failed else names[0]) if single else "")
    tabs = screen.query_one(PanelTabs)
    tabs.names = tuple(f"{number} {name}" for number, name in enumerate(names, start=1))
    tabs.active = names.index(shown) if shown in names else 0
    tabs.display = single
    screen.set_class(failed, "-failed")
    screen.set_class(bool(shown), "-one")
    screen.set_class(single, "-single")
    for name in panels:
        panel = screen.query_one(f"#{name}", Widget)
        visible = name in names and (not shown or name == shown)
        # A traceback needs the whole width; the log is a key away.
        crowded = name == "log" and failed and not shown and screen.size.width < 160
        panel.display = visible and not crowded
    for container in screen.query("#upper, #left, #right, #lower"):
        container.display = any(panel.display for panel in container.query(".panel"))
