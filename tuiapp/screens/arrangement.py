"""The Run screen's panels, a row each, and which of them are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from textual.screen import Screen
from textual.widget import Widget

from tuiapp.trainers.contract.metrics import EPOCH, STEP_TIME
from tuiapp.trainers.state.run_state import Fault, RunState
from tuiapp.widgets.panel_tabs import PanelTabs

LEAST_WIDTH, LEAST_HEIGHT = 100, 30
"""From this size on there is room for more than one panel."""

WIDE = 160
"""From this width on there is room for the log beside a failure."""

LEAST_FLAT = 6
"""Lines of sharding with its frame."""

FLAT_HEIGHT = 36
"""From this height on there is room for devices beneath the charts."""

CONTAINERS = "#charts, #left, #right, #upper, #lower"


class Panel(NamedTuple):
    exists: Callable[[RunState], bool] = lambda state: True  # whether there is something to show in it
    nothing: str = ""  # said where there is not
    words: str = ""  # of its key, if they are not its name
    only_alone: bool = False  # not shown among the others


PANELS = {
    **dict.fromkeys(("loss", "devices", "ranks"), Panel()),
    "sharding": Panel(
        lambda state: bool(state.arrays) or (state.is_live and not state.is_script), "No sharding was reported."
    ),
    "log": Panel(),
    "failure": Panel(lambda state: bool(state.fault), "No failure or hang.", "Failure or hang"),
    "predictions": Panel(lambda state: state.predictions is not None, "No predictions were reported.", only_alone=True),
    "epochs": Panel(
        lambda state: bool(state.steps_per_epoch) or EPOCH in state.curves.names,
        "It is not known how long an epoch is: no metric `epoch` was reported.",
        only_alone=True,
    ),
    "media": Panel(
        lambda state: bool(state.media), "No picture or text was reported.", "Pictures and texts", only_alone=True
    ),
}
"""By name, which is the id of the widget and its title, in the order of their keys; `compose` places them."""


MOST_FLAT = 0.2
"""Of the screen's height, for devices beneath the charts: many processes have a column of their own."""


def flat_height(state: RunState, height: int) -> int:
    """Returns the lines that devices and sharding need where a process is a line; 0 with GPUs, and without room."""
    if height < FLAT_HEIGHT or state.nodes:
        return 0
    without = str(state.config.get("platform")) == "cpu" or (state.host is not None and not state.gpus)
    count = len(state.ranks) or state.world_size
    least = LEAST_FLAT + (state.replicas is not None) if PANELS["sharding"].exists(state) else 0
    # A line each, the host, a frame, and perhaps how efficient they are.
    lines = count + 3 + (STEP_TIME in state.curves.names)
    return max(least, lines) if without and count + 4 <= MOST_FLAT * height else 0


@dataclass(frozen=True, slots=True)
class Arrangement:
    names: tuple[str, ...]
    """The panels that exist."""
    fault: Fault
    chosen: str
    """The panel shown alone; "" for all."""
    single: bool
    flat: int
    """Lines for devices and sharding side by side beneath the charts; 0 for a column of theirs."""
    wide: bool


def arrange(screen: Screen[Any], wanted: Arrangement) -> None:
    """Shows all panels or one, with the containers around it."""
    names, failed, single = wanted.names, bool(wanted.fault), wanted.single
    shown = wanted.chosen or (("failure" if failed else names[0]) if single else "")
    tabs = screen.query_one(PanelTabs)
    titles = {name: f"{number} {name}" for number, name in enumerate(PANELS, start=1)}
    if failed:
        titles["failure"] = titles["failure"].replace("failure", wanted.fault)
        screen.query_one("#failure").border_title = titles["failure"]
    tabs.names = tuple(titles[name] for name in names)
    tabs.active = names.index(shown) if shown in names else 0
    tabs.display = single
    flat = wanted.flat if not shown else 0
    # Notices are elsewhere than the matrix.
    screen.set_class(shown == "predictions", "-predictions", update=False)
    screen.query_one("#right").styles.height = flat or None
    for name, is_set in (("-failed", failed), ("-one", bool(shown)), ("-single", single), ("-flat", bool(flat))):
        screen.set_class(is_set, name, update=False)
    # Only of what depends on those classes: restyling the whole screen would take three times as long.
    screen.app.stylesheet.update_nodes(screen.query(f"#alert, ToastRack, .panel, {CONTAINERS}"))
    for name, panel in PANELS.items():
        visible = name in names and (name == shown if shown else not panel.only_alone)
        # A traceback needs the whole width; a key shows the log.
        crowded = name == "log" and failed and not shown and not wanted.wide
        screen.query_one(f"#{name}", Widget).display = visible and not crowded
    widgets = [screen.query_one(f"#{name}", Widget) for name in PANELS]
    for container in screen.query(CONTAINERS):
        container.display = any(widget.display and container in widget.ancestors for widget in widgets)
