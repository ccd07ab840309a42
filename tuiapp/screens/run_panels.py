"""The Run screen's panels, a row each, its charts among them, and which of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.reactive import var
from textual.screen import Screen
from textual.widget import Widget

from tuiapp.library.chart_view import MOST_NAMES
from tuiapp.screens.chart_grid import ChartGrid, Layout
from tuiapp.screens.chart_sources import RunSource
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.metrics import EPOCH, TEST
from tuiapp.trainers.state.known_metrics import ASIDE, ENOUGH, UTILIZATION, by_importance, metric, of_interest
from tuiapp.trainers.state.objective import Objective, chosen_of
from tuiapp.trainers.state.run_state import Fault, RunState, Topic
from tuiapp.trainers.state.text import fit
from tuiapp.view.epochs import epoch_columns
from tuiapp.view.grid import grid_size
from tuiapp.view.table import nonempty, plain_table
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.media_panel import MediaPanel
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.predictions_panel import PredictionsPanel
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.sharding_map import ShardingMap
from tuiapp.widgets.text_view import TextPanel, TextView

LEAST_WIDTH = 100
"""From this width of the screen on there is room for more than one chart, and more than one panel."""

ROOMY, LEAST = (37, 13), (37, 10)
"""Cells across and down of a chart of a run, with its border; the least only where what is learned has no room else."""

MOST_LISTED = 0.15
"""Share of the height for the last values of all metrics, where these are more than charts."""

NAME_CELLS, VALUE_CELLS, GAP_CELLS = 24, 9, 3
"""Cells of a metric in the list of last values: of its name at most, of its value, and between two."""

LEAST_ACROSS = 3
"""Metrics beside each other in that list, at least."""

MOST_MEASURED = 100
"""Most names that are measured for the width of the list's columns."""


class RunCharts(ChartGrid[ChartPanel]):
    """The run's charts, as many as there is room for."""

    DEFAULT_CSS = """
    RunCharts #latest { dock: bottom; padding: 0 1; }
    """

    several: var[bool | None] = var(None, init=False)
    """Whether the user wants more than one chart; None for where there is room."""

    def __init__(self, source: RunSource) -> None:
        super().__init__(source, self._new, self._chosen_for, pins=self, id="charts")
        self.objective: Objective | None = None
        """What the run is best by."""
        self._expected: list[str] = []
        self._best = ""
        """The key `best` of a built-in trainer."""
        self._constant: set[str] = set()
        """Metrics that had one value at the last look."""
        self._looked_at: object = None
        self._live = True
        self._chosen_at = 0
        """The run's step when the charts were chosen."""
        self._listed: Sequence[str] = ()
        """All metrics, the most important first, if there are more than charts."""
        self._most_lines = 0

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield TextView(id="latest")

    def lay_out(self) -> None:
        super().lay_out()
        self._list()

    def _list(self) -> None:
        self.query_one("#latest", TextView).update(self._latest)

    def _latest(self, width: int) -> list[Content]:
        """Returns lines with the last value of each metric, as far as there is room."""
        if not self._listed:
            return []
        value_cells = 1 + VALUE_CELLS + GAP_CELLS
        longest = max(cell_len(metric(name).label) for name in self._listed[:MOST_MEASURED])
        cells = min(NAME_CELLS, longest, max(1, (width + GAP_CELLS) // LEAST_ACROSS - value_cells))
        across = max(1, (width + GAP_CELLS) // (cells + value_cells))
        places = across * self._most_lines
        left_out = len(self._listed) - places + 1 if len(self._listed) > places else 0
        parts = [
            Content.assemble((fit(metric(name).label, cells), MUTED), f" {self.source.latest(name):>{VALUE_CELLS}}")
            for name in self._listed[: places - bool(left_out)]
        ]
        if left_out:
            parts.append(Content.styled(f"{left_out:,} more · G", MUTED))
        gap = Content(" " * GAP_CELLS)
        return [gap.join(parts[first : first + across]) for first in range(0, len(parts), across)]

    def _new(self, number: int) -> ChartPanel:
        panel = ChartPanel(self.source, id=f"chart-{number + 1}" if number else "loss", classes="panel -empty")
        self.watch(panel, "options", partial(self._entitle, panel))
        return panel

    def _entitle(self, panel: ChartPanel) -> None:
        name = panel.options.metric
        key = "1 " if panel.id == "loss" else ""
        title = f"{key}{metric(name).label}{' · pinned' if name in self.pinned and not key else ''}"
        if str(panel.border_title) != title:
            panel.border_title = Content(title)

    @property
    def pinned(self) -> Sequence[str]:
        """Metrics that have a chart in every run that reports them, as far as there is room."""
        return self.memory.view.pinned

    def toggle_pin(self, name: str) -> None:
        """Pins a metric, or unpins it."""
        self._pin([pinned for pinned in self.pinned if pinned != name] if name in self.pinned else [*self.pinned, name])

    def _pin(self, names: Sequence[str]) -> None:
        self.memory.keep(pinned=tuple(names)[-MOST_NAMES:])
        self.lay_out()
        for panel in self.panels:
            self._entitle(panel)

    def show(self, state: RunState) -> None:
        """Draws what is new in a run."""
        last = state.last_checkpoint
        self.main.note = f"checkpoint: step {last.step:,}{' · best so far' if last.best else ''}" if last else ""
        # A trainer with epochs evaluates after them.
        expected = [f"{TEST}/{state.task.figure}"] if state.steps_per_epoch and state.is_live else []
        best = "" if state.is_script else str(state.config.get("best", ""))
        # What is constant is known better with twice the steps.
        if (expected, best, state.is_live) != (self._expected, self._best, self._live) or (
            state.step > 2 * self._chosen_at
        ):
            self._expected, self._best, self._live, self._chosen_at = expected, best, state.is_live, state.step
            self.names = None
        self._list()
        self.update()

    def _chosen_for(self, names: Sequence[str], size: Size) -> Layout:
        view, first = self.memory.view, self.first(names)
        reported = dict.fromkeys([*names, *self._expected])
        self.objective = chosen_of(reported, view.objective, rises=view.rises, asked=self._best)
        wanted = [name for name in self.pinned if name in reported]
        if self.objective is not None:
            wanted.append(self.objective.name)
        if self._looked_at != (looked_at := (len(names), self._live, self._chosen_at)):
            # Not at each resize: a run may have thousands.
            self._looked_at = looked_at
            self._constant = {name for name in names if self.source.constant(name) is not None}
        shown = [first, *of_interest(reported, first, wanted, self._constant)[1:]]
        learned = sum(name not in ASIDE or name in wanted for name in shown)
        columns, rows = _grid(len(shown), learned, size)
        listed = [name for name in names if name != UTILIZATION]
        self._listed = by_importance(listed, wanted[-1] if wanted else "") if len(listed) > columns * rows else ()
        if self._listed:
            self._most_lines = max(1, int(MOST_LISTED * size.height))
            lines = len(self._latest(size.width - 2))
            columns, rows = _grid(len(shown), learned, size - (0, lines))
        if self.several is False or (self.several is None and self.screen.size.width < LEAST_WIDTH):
            columns = rows = 1
        elif self.several and columns * rows == 1:
            columns, rows = 1, 2
        return Layout(shown[: columns * rows], columns, rows)

    @on(ChartGrid.MetricChosen)
    def _take(self, event: ChartGrid.MetricChosen) -> None:
        """Shows a metric that the user chose; in another chart than the first it is pinned."""
        if not event.index:
            self.choose_first(event.name)
            return
        former = self.panels[event.index].options.metric
        before = [pinned for pinned in self.pinned if pinned != event.name]
        index = before.index(former) if former in before else len(before)
        self._pin([*before[:index], event.name, *before[index + (former in before) :]])
        shown = next((panel for panel in self.panels[1:] if panel.display and panel.options.metric == event.name), None)
        if shown is not None:
            shown.focus()

    def do(self, what: str) -> None:
        """Does what a key asks for; "several" shows one chart, or several."""
        if what != "several":
            super().do(what)
            return
        self.several = sum(panel.display for panel in self.panels) == 1
        self.lay_out()


def _grid(shown: int, learned: int, size: Size) -> tuple[int, int]:
    columns, rows = grid_size(min(ENOUGH, shown), size.width, size.height, ROOMY)
    if columns * rows < min(ENOUGH, learned):
        columns, rows = grid_size(min(ENOUGH, learned), size.width, size.height, LEAST)
    return columns, rows


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
    """Container of the panel."""
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
    """Place of the panel in its container."""


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
