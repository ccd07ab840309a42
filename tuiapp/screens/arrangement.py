"""The Run screen's panels, a row each, and which of them are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from textual.screen import Screen
from textual.widget import Widget

from tuiapp.screens.chart_sources import RunSource
from tuiapp.screens.charts import RunCharts
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.metrics import EPOCH, STEP_TIME
from tuiapp.trainers.state.run_state import Fault, RunState, Topic
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.epochs_panel import EpochsPanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.media_panel import MediaPanel
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.predictions_panel import PredictionsPanel
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.sharding_map import ShardingMap

LEAST_HEIGHT = 30
"""From this height on, and from `LEAST_WIDTH`, there is room for more than one panel."""

WIDE = 160
"""From this width on there is room for the log beside a failure."""

LEAST_FLAT = 6
"""Lines of sharding with its frame."""

FLAT_HEIGHT = 36
"""From this height on there is room for devices beneath the charts."""

CONTAINERS = "#charts, #left, #right, #upper, #lower"


class Panel(NamedTuple):
    make: Callable[[RunReader, RunSource], Any]
    """Returns a widget that has `show(state)`; the row's name is its id and title."""
    inside: Literal["left", "right", "lower"]
    """Its container."""
    topic: Topic
    """The part of the run's state that it shows: it is drawn anew when that changes."""
    exists: Callable[[RunState], bool] = lambda state: True
    """Whether there is something to show in it."""
    nothing: str = ""
    """Said where there is not."""
    words: str = ""
    """Of its key, if they are not its name."""
    only_alone: bool = False
    """Not shown among the others."""
    leads: bool = False
    """It stands before the others of its container."""


PANELS = {
    "loss": Panel(lambda reader, source: RunCharts(source), "left", "curves"),
    "devices": Panel(lambda reader, source: DevicePanel(), "right", "devices"),
    "ranks": Panel(lambda reader, source: RankTable(lambda: reader.now), "left", "ranks"),
    "sharding": Panel(
        lambda reader, source: ShardingMap(),
        "right",
        "sharding",
        lambda state: bool(state.arrays) or (state.is_live and not state.is_script),
        "No sharding was reported.",
    ),
    "log": Panel(lambda reader, source: LogView(), "lower", "log"),
    "failure": Panel(
        lambda reader, source: FailurePanel(reader.run.path),
        "lower",
        "alerts",
        lambda state: bool(state.fault),
        "No failure or hang.",
        "Failure or hang",
        leads=True,
    ),
    "predictions": Panel(
        lambda reader, source: PredictionsPanel(reader.run.media),
        "lower",
        "predictions",
        lambda state: state.predictions is not None,
        "No predictions were reported.",
        only_alone=True,
    ),
    "epochs": Panel(
        lambda reader, source: EpochsPanel(),
        "lower",
        "curves",
        lambda state: bool(state.steps_per_epoch) or EPOCH in state.curves.names,
        "It is not known how long an epoch is: no metric `epoch` was reported.",
        only_alone=True,
    ),
    "media": Panel(
        lambda reader, source: MediaPanel(reader.run.media),
        "lower",
        "media",
        lambda state: bool(state.media),
        "No picture or text was reported.",
        "Pictures and texts",
        only_alone=True,
    ),
}
"""By name, in the order of their keys."""


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
