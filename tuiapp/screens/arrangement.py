"""Decides which of the Run screen's panels are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textual.screen import Screen
from textual.widget import Widget

from tuiapp.state.run_state import Fault
from tuiapp.widgets.panel_tabs import PanelTabs

WIDE = 160
"""From this width on a failure leaves room for the log beside it."""

CONTAINERS = "#charts, #left, #right, #upper, #lower"


@dataclass(frozen=True, slots=True)
class Arrangement:
    fault: Fault
    chosen: str
    """The panel shown alone; "" for all."""
    single: bool
    second: bool
    wide: bool


def arrange(screen: Screen[Any], panels: Sequence[str], wanted: Arrangement) -> None:
    """Shows all panels or one, with the containers around it; the last of `panels` is for a failure or a hang."""
    failed, single = bool(wanted.fault), wanted.single
    names = panels if failed else panels[:-1]
    shown = wanted.chosen or ((names[-1] if failed else names[0]) if single else "")
    tabs = screen.query_one(PanelTabs)
    if failed:
        screen.query_one(f"#{panels[-1]}").border_title = f"{len(panels)} {wanted.fault}"
    titles = [*panels[:-1], wanted.fault] if failed else names
    tabs.names = tuple(f"{number} {title}" for number, title in enumerate(titles, start=1))
    tabs.active = names.index(shown) if shown in names else 0
    tabs.display = single
    for name, is_set in (("-failed", failed), ("-one", bool(shown)), ("-single", single)):
        screen.set_class(is_set, name, update=False)
    # Only of what depends on those classes: restyling the whole screen would take three times as long.
    screen.app.stylesheet.update_nodes(screen.query(f"#alert, .panel, {CONTAINERS}"))
    for name in panels:
        panel = screen.query_one(f"#{name}", Widget)
        visible = name in names and (not shown or name == shown)
        # A traceback needs the whole width; a key shows the log.
        crowded = name == "log" and failed and not shown and not wanted.wide
        panel.display = visible and not crowded
    screen.query_one("#second").display = wanted.second and screen.query_one("#loss").display
    for container in screen.query(CONTAINERS):
        container.display = any(panel.display for panel in container.query(".panel"))
