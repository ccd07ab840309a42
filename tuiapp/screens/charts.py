"""The charts of the Run screen and of Compare: their metrics are chosen from a list, and they are seen as last time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from textual.content import Content
from textual.reactive import var
from textual.widget import Widget

from tuiapp.library.chart_view import MOST_NAMES
from tuiapp.screens.arrangement import LEAST_WIDTH
from tuiapp.screens.chart_memory import ChartMemory
from tuiapp.screens.chart_sources import RunSource
from tuiapp.screens.pickers import MetricList, Pins
from tuiapp.trainers.contract.metrics import LOSS, TEST, TEST_ACCURACY
from tuiapp.trainers.state.known_metrics import UTILIZATION, first_choice, metric, of_interest
from tuiapp.trainers.state.objective import Objective, chosen_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.chart import ChartOptions
from tuiapp.view.grid import grid_size
from tuiapp.widgets.chart_board import ChartBoard
from tuiapp.widgets.chart_panel import ChartPanel

MOST = 6
"""Charts of a run at once."""

LEAST = (37, 13)
"""Cells across and down of a chart of a run, with its border."""


class ChosenCharts(ChartBoard):
    """Shows the metric of most interest until the user chooses another."""

    pins: Pins | None = None
    """Has the metrics that the user pinned, where they can be."""

    def __init__(self, *children: Widget, id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self._memory = ChartMemory(self)
        self._is_chosen = False
        """The user chose the metric of the first chart."""
        self._offered = 0
        """Number of metrics when it was given one."""

    def on_mount(self) -> None:
        self._memory.begin()
        view = self._memory.view
        for panel in self.panels:
            panel.change(axis=view.axis, smoothing=view.smoothing)
        for first in self.panels[:1]:
            # Charts that are removed while they are mounted have none.
            first.change(log=view.log)

    def on_unmount(self) -> None:
        self._memory.close()

    def update(self) -> None:
        """Draws what is new in the sources."""
        names = [name for name in self.main.source.names() if name != UTILIZATION]
        if len(names) > self._offered:
            self._offered = len(names)
            self.offer(names)
        super().update()

    def offer(self, names: Sequence[str]) -> None:
        """Shows the metric of most interest, now that there are others."""
        if not self._is_chosen:
            kept = self._memory.view.metric
            self.main.change(metric=kept if kept in names else first_choice(names))

    def choose(self, panel: ChartPanel, name: str) -> None:
        """Shows a metric that the user chose."""
        self._is_chosen = True
        panel.change(metric=name)
        self._memory.keep(metric=name)

    def do(self, what: str) -> None:
        """Does what a key asks for; "metric" lists the metrics."""
        if what == "metric":
            self._list_metrics(self.active)
            return
        super().do(what)
        options = self.main.options
        self._memory.keep(smoothing=options.smoothing, log=options.log)
        if options.axis in ("step", "time"):
            # Not every run has others.
            self._memory.keep(axis=options.axis)

    def _list_metrics(self, panel: ChartPanel) -> None:
        def show(name: str | None) -> None:
            if name:
                self.choose(panel, name)

        names = panel.source.names() or [LOSS]
        self.app.push_screen(MetricList(names, panel.options.metric, title="Metric", pins=self.pins), show)


class RunCharts(ChosenCharts):
    """The Run screen's charts, as many as there is room for: the first, those pinned, the objective, and others."""

    several: var[bool | None] = var(None, init=False)
    """Whether the user wants more than one chart; None for where there is room."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self.pins = self
        self.objective: Objective | None = None
        """What the run is best by."""
        self._expected: list[str] = []
        self._best = ""
        """The key `best` of a built-in trainer."""
        first = ChartPanel(source, id="loss", classes="panel -empty")
        super().__init__(first, self._new(1, TEST_ACCURACY), id="charts")
        self._names: Sequence[str] = ()
        """What there are charts of when there is room, the first one left out."""
        self._laid_out: object = None
        self._live = True
        self._chosen_at = 0
        """The run's step when they were chosen."""

    def _new(self, place: int, name: str) -> ChartPanel:
        panel = ChartPanel(self._source, ChartOptions(name), id=f"chart-{place + 1}", classes="panel -empty")
        panel.display = False
        return panel

    def on_mount(self) -> None:
        for panel in self.panels:
            self.watch(panel, "options", partial(self._entitle, panel))

    def on_resize(self) -> None:
        self._lay_out()

    def add(self, panel: ChartPanel) -> None:
        super().add(panel)
        self.watch(panel, "options", partial(self._entitle, panel))

    def _entitle(self, panel: ChartPanel) -> None:
        name = panel.options.metric
        key = "1 " if panel is self.main else ""
        title = f"{key}{metric(name).label}{' · pinned' if name in self.pinned and not key else ''}"
        if str(panel.border_title) != title:
            panel.border_title = Content(title)

    @property
    def pinned(self) -> Sequence[str]:
        """Metrics that have a chart in every run that reports them, as far as there is room."""
        return self._memory.view.pinned

    def toggle_pin(self, name: str) -> None:
        """Pins a metric, or no longer."""
        self._pin([one for one in self.pinned if one != name] if name in self.pinned else [*self.pinned, name])

    def _pin(self, names: Sequence[str]) -> None:
        self._memory.keep(pinned=tuple(names)[-MOST_NAMES:])
        self._choose_others()
        for panel in self.panels:
            self._entitle(panel)

    def show(self, state: RunState) -> None:
        """Draws what is new in a run."""
        last = state.last_checkpoint
        subtitle = f"checkpoint: step {last.step:,}{' · best so far' if last.best else ''}" if last else ""
        self.main.note = subtitle
        # A trainer with epochs evaluates after them.
        expected = [f"{TEST}/{state.task.figure}"] if state.steps_per_epoch and state.is_live else []
        best = "" if state.is_script else str(state.config.get("best", ""))
        if (expected, best) != (self._expected, self._best):
            self._expected, self._best = expected, best
            self._choose_others()
        if self._live != state.is_live or state.step > 2 * self._chosen_at:
            # What is constant is known better now.
            self._live, self._chosen_at, self._offered = state.is_live, state.step, 0
        self.update()

    def offer(self, names: Sequence[str]) -> None:
        """Shows the metrics of most interest, now that there are others."""
        super().offer(names)
        self._choose_others()

    def _choose_others(self) -> None:
        names, view = self._source.names(), self._memory.view
        reported = dict.fromkeys([*names, *self._expected])
        self.objective = chosen_of(reported, view.objective, rises=view.rises, asked=self._best)
        wanted = [name for name in self.pinned if name in reported]
        if self.objective is not None:
            wanted.append(self.objective.name)
        constant = {name for name in names if self._source.constant(name) is not None}
        first = self.main.options.metric
        self._names = of_interest(reported, first, wanted, constant)[1:]
        self._lay_out()

    def _lay_out(self) -> None:
        """Shows as many charts as there is room for."""
        size = self.size
        if not (size.width and self._names):
            return
        columns, rows = grid_size(min(MOST, 1 + len(self._names)), size.width, size.height, LEAST)
        if self.several is False or (self.several is None and self.screen.size.width < LEAST_WIDTH):
            columns = rows = 1
        elif self.several and columns * rows == 1:
            columns, rows = 1, 2
        names = self._names[: columns * rows - 1]
        if self._laid_out == (laid_out := (columns, rows, *names)):
            return
        self._laid_out = laid_out
        self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
        for place, name in enumerate(names, start=1):
            if place == len(self.panels):
                self.add(self._new(place, name))
            self.panels[place].change(metric=name)
        for place, panel in enumerate(self.panels[1:]):
            panel.display = place < len(names)

    def choose(self, panel: ChartPanel, name: str) -> None:
        """Shows a metric that the user chose; in another chart than the first it is pinned."""
        if panel is self.main:
            super().choose(panel, name)
            self._choose_others()
            return
        former = panel.options.metric
        before = [one for one in self.pinned if one != name]
        place = before.index(former) if former in before else len(before)
        self._pin([*before[:place], name, *before[place + (former in before) :]])
        shown = next((one for one in self.panels[1:] if one.display and one.options.metric == name), None)
        if shown is not None:
            shown.focus()

    def do(self, what: str) -> None:
        """Does what a key asks for; "several" shows one chart, or several."""
        if what != "several":
            super().do(what)
            return
        self.several = sum(panel.display for panel in self.panels) == 1
        self._lay_out()
