"""Decides which of the Run screen's panels are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textual.screen import Screen
from textual.widget import Widget

from trainers.state.run_state import Fault
from tuiapp.widgets.panel_tabs import PanelTabs

LEAST_WIDTH, LEAST_HEIGHT = 100, 30
"""From this size on there is room for more than one panel."""

WIDE = 160
"""From this width on there is room for a second chart, and for the log beside a failure."""

CONTAINERS = "#charts, #left, #right, #upper, #lower"


@dataclass(frozen=True, slots=True)
class Arrangement:
    fault: Fault
    chosen: str
    """The panel shown alone; "" for all."""
    single: bool
    second: bool
    wide: bool
    predicts: bool
    """Whether an evaluation has reported predictions."""


def arrange(screen: Screen[Any], panels: Sequence[str], wanted: Arrangement) -> None:
    """Shows all panels or one, with the containers around it; "predictions" only alone."""
    failed, single = bool(wanted.fault), wanted.single
    names = [name for name in panels if {"failure": failed, "predictions": wanted.predicts}.get(name, True)]
    shown = wanted.chosen or (("failure" if failed else names[0]) if single else "")
    tabs = screen.query_one(PanelTabs)
    titles = {name: f"{number} {name}" for number, name in enumerate(panels, start=1)}
    if failed:
        titles["failure"] = titles["failure"].replace("failure", wanted.fault)
        screen.query_one("#failure").border_title = titles["failure"]
    tabs.names = tuple(titles[name] for name in names)
    tabs.active = names.index(shown) if shown in names else 0
    tabs.display = single
    for name, is_set in (("-failed", failed), ("-one", bool(shown)), ("-single", single)):
        screen.set_class(is_set, name, update=False)
    # Only of what depends on those classes: restyling the whole screen would take three times as long.
    screen.app.stylesheet.update_nodes(screen.query(f"#alert, .panel, {CONTAINERS}"))
    for name in panels:
        panel = screen.query_one(f"#{name}", Widget)
        visible = name in names and (name == shown if shown or name == "predictions" else True)
        # A traceback needs the whole width; a key shows the log.
        crowded = name == "log" and failed and not shown and not wanted.wide
        panel.display = visible and not crowded
    screen.query_one("#second").display = wanted.second and screen.query_one("#loss").display
    for container in screen.query(CONTAINERS):
        container.display = any(panel.display for panel in container.query(".panel"))
