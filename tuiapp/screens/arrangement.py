"""The Run screen's panels, a row each, and which of them are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from tuiapp.screens.chart_sources import RunSource
from tuiapp.screens.charts import RunCharts
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.metrics import EPOCH
from tuiapp.trainers.state.run_state import Fault, RunState, Topic
from tuiapp.view.epochs import epoch_columns
from tuiapp.view.table import nonempty, plain_table
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.media_panel import MediaPanel
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.predictions_panel import PredictionsPanel
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.sharding_map import ShardingMap
from tuiapp.widgets.text_view import TextPanel

MOST_ROWS = 500
"""Most epochs drawn at each change; `tuiapp show --all` and exports have all."""


class EpochsPanel(TextPanel):
    WAITING = "no step has been reported yet"

    def lines(self, state: RunState, width: int) -> list[Content]:
        rows = state.curves.last_epochs(MOST_ROWS)[::-1] if self.display else []
        if not rows:
            return []
        heading, *lines = plain_table(nonempty(epoch_columns(state.curves.names), rows), rows, width)
        return [Content.styled(heading, MUTED), *(Content(line) for line in lines)]


LEAST_HEIGHT = 30
"""From this height on, and from `LEAST_WIDTH`, there is room for more than one panel."""

WIDE = 160
"""From this width on there is room for the log beside a failure."""

LEAST_LOG, MOST_LOG = 2, (6, 10)
"""Rows of the log, where it is one of several panels, on a narrow and on a wide screen: as many as it has."""

MOST_FAILURE = (14, 22)
"""Lines of a failure, as `run.tcss` has it."""

MOST_SHARE = 0.4
"""Share of the screen's height for ranks and devices, and for sharding: the rest of them is scrolled to."""

LEAST_CHARTS = 20
"""Lines of the charts, with those of header and footer."""

FRAME = 2
"""Lines of a panel's frame."""

CONTAINERS = "#charts, #middle, #lower"


class Panel(NamedTuple):
    make: Callable[[RunReader, RunSource], Any]
    """Returns a widget that has `show(state)`; the row's name is its id and title."""
    inside: Literal["body", "middle", "lower"]
    """The panel's container."""
    topic: Topic
    """The part of the run's state that it shows: it is drawn anew when that changes."""
    exists: Callable[[RunState], bool] = lambda state: True
    """Whether there is something to show in it."""
    nothing: str = ""
    """What is said where there is not."""
    label: str = ""
    """What its key is called, if that is not its name."""
    only_alone: bool = False
    """Whether it is never shown among the others."""
    order: int = 0
    """Its place in its container."""


PANELS = {
    "loss": Panel(lambda reader, source: RunCharts(source), "body", "curves"),
    "devices": Panel(lambda reader, source: DevicePanel(), "middle", "devices", order=1),
    "ranks": Panel(lambda reader, source: RankTable(lambda: reader.now), "middle", "ranks"),
    "sharding": Panel(
        lambda reader, source: ShardingMap(),
        "lower",
        "sharding",
        lambda state: bool(state.arrays) or (state.is_live and not state.is_script),
        "No sharding was reported.",
        order=2,
    ),
    "log": Panel(lambda reader, source: LogView(), "lower", "log", order=1),
    "failure": Panel(
        lambda reader, source: FailurePanel(reader.run.path),
        "lower",
        "alerts",
        lambda state: bool(state.fault),
        "No failure or hang.",
        "Failure or hang",
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
"""The panels by name, in the order of their keys."""


def is_alone(state: RunState) -> bool:
    """Returns whether one rank trains, without a GPU: header and charts say all of it but a line."""
    without = str(state.config.get("platform")) == "cpu" or (state.host is not None and not state.gpus)
    return without and not state.nodes and max(len(state.ranks), state.world_size) == 1


def heights(screen: Screen[Any], state: RunState, *, wide: bool) -> tuple[int, int]:
    """Returns the lines of ranks and devices, and of log and sharding: what they need, as far as charts leave it."""
    height, devices = screen.size.height, screen.query_one(DevicePanel).wanted_height
    lower = max(LEAST_LOG, min(screen.query_one(LogView).row_count, MOST_LOG[wide]))
    if is_alone(state):
        return devices, lower + FRAME
    if PANELS["sharding"].exists(state):
        lower = max(lower, min(screen.query_one(ShardingMap).line_count, int(MOST_SHARE * height)))
    beneath = min(MOST_FAILURE[wide], screen.query_one(FailurePanel).line_count) if state.fault else lower
    room = height - LEAST_CHARTS - beneath - FRAME
    wanted = max(devices, screen.query_one(RankTable).wanted_height)
    return max(1, min(wanted, room, int(MOST_SHARE * height))) + FRAME, lower + FRAME


@dataclass(frozen=True, slots=True)
class Arrangement:
    names: tuple[str, ...]
    """The panels that exist."""
    fault: Fault
    chosen: str
    """The panel shown alone; "" for all."""
    single: bool
    alone: bool
    """Whether one rank without a GPU is all there is: its device then has a line, and nothing else."""
    middle: int
    """Lines of ranks and devices."""
    lower: int
    """Lines of log and sharding."""
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
    bare = wanted.alone and not shown
    # Notices are elsewhere than the matrix.
    screen.set_class(shown == "predictions", "-predictions", update=False)
    screen.query_one("#middle").styles.height = wanted.middle if not shown else None
    screen.query_one("#lower").styles.height = wanted.lower if not (shown or failed) else None
    for name, is_set in (("-failed", failed), ("-one", bool(shown)), ("-single", single), ("-bare", bare)):
        screen.set_class(is_set, name, update=False)
    # Only of what depends on those classes: restyling the whole screen would take three times as long.
    screen.app.stylesheet.update_nodes(screen.query(f"#alert, ToastRack, .panel, {CONTAINERS}"))
    for name, panel in PANELS.items():
        visible = name in names and (name == shown if shown else not panel.only_alone)
        if not shown:
            # A traceback needs the whole width; a key shows the log.
            left_out = {"sharding", *(() if wanted.wide else ("log",))} if failed else set()
            visible = visible and name not in (left_out | {"ranks", "sharding"} if bare else left_out)
        screen.query_one(f"#{name}", Widget).display = visible
    widgets = [screen.query_one(f"#{name}", Widget) for name in PANELS]
    for container in screen.query(CONTAINERS):
        container.display = any(widget.display and container in widget.ancestors for widget in widgets)
