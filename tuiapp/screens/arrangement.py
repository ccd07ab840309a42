"""Which of the Run screen's panels are on show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textual.screen import Screen
from textual.widget import Widget

from tuiapp.state.run_facts import Fault
from tuiapp.widgets.panel_tabs import PanelTabs

WIDE = 160
"""From this width on a failure leaves room for the log beside it."""

CONTAINERS = "#charts, #left, #right, #upper, #lower"
"""What the panels stand in."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What decides which panels are on show."""

    fault: Fault
    """Whether there is a failure or a hang to show, and so what the last panel is called."""
    chosen: str
    """The panel that gets all the room; "" for none."""
    single: bool
    """There is room for one at a time only."""
    second: bool
    """Whether the second chart stands beside the first one."""
    wide: bool
    """Whether the screen has at least `WIDE` columns."""


def arrange(screen: Screen[Any], panels: Sequence[str], wanted: Arrangement) -> None:
    """Show all panels, or one, with the containers around it.

    Args:
        screen: Where they are, with tabs for them.
        panels: Their ids; the last one is for a failure, or a hang.
        wanted: What decides.
    """
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
    # Only of what depends on those classes: of all that is on the screen it would take three times as long.
    screen.app.stylesheet.update_nodes(screen.query(f"#alert, .panel, {CONTAINERS}"))
    for name in panels:
        panel = screen.query_one(f"#{name}", Widget)
        visible = name in names and (not shown or name == shown)
        # A traceback needs the whole width; the log is a key away.
        crowded = name == "log" and failed and not shown and not wanted.wide
        panel.display = visible and not crowded
    screen.query_one("#second").display = wanted.second and screen.query_one("#loss").display
    for container in screen.query(CONTAINERS):
        container.display = any(panel.display for panel in container.query(".panel"))
