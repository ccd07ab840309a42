"""The charts of the Run screen and of Compare: their metrics are chosen from a list, and they are seen as last time."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from textual.content import Content
from textual.reactive import var
from textual.widget import Widget

from trainers.contract.metrics import LOSS, TEST_ACCURACY
from trainers.state.known_metrics import UTILIZATION, first_choice, metric, second_choice
from trainers.state.run_state import RunState
from tuiapp.screens.arrangement import LEAST_HEIGHT, WIDE
from tuiapp.screens.chart_memory import ChartMemory
from tuiapp.screens.pickers import NOTHING, MetricList
from tuiapp.view.chart import ChartOptions
from tuiapp.widgets.chart_board import ChartBoard
from tuiapp.widgets.chart_panel import ChartPanel, ChartSource

KEPT = ("metric", "second")
"""The metrics that `ChartView` keeps, of the first panel and of the second."""


class ChosenCharts(ChartBoard):
    """Shows the metrics of most interest until the user chooses others."""

    def __init__(self, *children: Widget, id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self._memory = ChartMemory(self)
        self._chosen: set[ChartPanel] = set()
        """Panels whose metric the user chose."""
        self._offered = 0
        """Number of metrics when the others were given one."""

    def on_mount(self) -> None:
        self._memory.begin()
        view = self._memory.view
        for panel in self.panels:
            panel.change(axis=view.axis, smoothing=view.smoothing)
        self.main.change(log=view.log)

    def on_unmount(self) -> None:
        self._memory.close()

    def update(self, expected: Collection[str] = ()) -> None:
        """Draws what is new in the sources. `expected` are metrics that a run will report."""
        names = [name for name in self.main.source.names() if name != UTILIZATION]
        if len(names) > self._offered:
            self._offered = len(names)
            for place, panel in enumerate(self.panels):
                if panel not in self._chosen:
                    panel.change(metric=self._choose(place, names, expected))
        super().update()

    def _choose(self, place: int, names: Collection[str], expected: Collection[str]) -> str:
        kept, first = getattr(self._memory.view, KEPT[place]), self.main.options.metric
        if not place:
            return kept if kept in names else first_choice(names)
        return kept if kept in names and kept != first else second_choice([*expected, *names], first)

    def choose(self, panel: ChartPanel, name: str) -> None:
        """Shows a metric that the user chose."""
        self._chosen.add(panel)
        panel.change(metric=name)
        self._memory.keep(**{KEPT[self.panels.index(panel)]: name})

    def do(self, what: str) -> None:
        """Does what a key asks for; "metric" lists the metrics."""
        if what == "metric":
            self._list_metrics(self.active)
            return
        super().do(what)
        options = self.main.options
        self._memory.keep(smoothing=options.smoothing, log=options.log)
        if options.axis != "epoch":
            # Not every run has epochs.
            self._memory.keep(axis=options.axis)

    def _list_metrics(self, panel: ChartPanel) -> None:
        def show(name: str | None) -> None:
            if name:
                self.choose(panel, name)

        names = panel.source.names() or [LOSS]
        self.app.push_screen(MetricList(names, panel.options.metric, title="Metric"), show)


class RunCharts(ChosenCharts):
    """The Run screen's two charts; the second one is shown where there is much room, or as the user wants."""

    asked: var[bool | None] = var(None, init=False)
    """Whether the user wants the second chart; None for where there is room."""

    def __init__(self, source: ChartSource) -> None:
        self._first = ChartPanel(source, id="loss", classes="panel -empty")
        self._second = ChartPanel(source, ChartOptions(TEST_ACCURACY), id="second", classes="panel -empty")
        super().__init__(self._first, self._second, id="charts")

    def on_mount(self) -> None:
        for key, panel in (("1", self._first), ("M", self._second)):
            self.watch(panel, "options", partial(self._entitle, key, panel))

    def _entitle(self, key: str, panel: ChartPanel) -> None:
        title = f"{key} {metric(panel.options.metric).label}"
        if str(panel.border_title) != title:
            panel.border_title = Content(title)

    @property
    def wants_second(self) -> bool:
        if self.asked is not None:
            return self.asked
        size = self.screen.size
        return size.width >= WIDE and size.height >= LEAST_HEIGHT

    def show(self, state: RunState) -> None:
        """Draws what is new in a run."""
        last = state.last_checkpoint
        subtitle = f"checkpoint: step {last.step:,}{' · best' if last.best else ''}" if last else ""
        for panel in self.panels:
            if str(panel.border_subtitle or "") != subtitle:
                panel.border_subtitle = Content(subtitle)
        # A trainer with epochs evaluates after them.
        self.update([TEST_ACCURACY] if state.steps_per_epoch else [])

    def do(self, what: str) -> None:
        """Does what a key asks for; "second" lists the metrics of the second chart."""
        if what != "second":
            super().do(what)
            return
        panel = self._second

        def show(name: str | None) -> None:
            if name is not None:
                self.asked = name != NOTHING
                self.choose(panel, name or panel.options.metric)

        names, drawn = panel.source.names() or [LOSS], panel.options.metric if self.wants_second else ""
        asked = MetricList(names, drawn, title="Metric of the second chart", nothing="no second chart")
        self.app.push_screen(asked, show)
