"""The Run screen's charts: the metric of most interest or the chosen one, those pinned, the objective, and others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.reactive import var

from tuiapp.library.chart_view import MOST_NAMES
from tuiapp.screens.chart_grid import ChartGrid, Layout
from tuiapp.screens.chart_sources import RunSource
from tuiapp.trainers.contract.metrics import TEST
from tuiapp.trainers.state.known_metrics import ASIDE, ENOUGH, UTILIZATION, by_importance, metric, of_interest
from tuiapp.trainers.state.objective import Objective, chosen_of
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import fit
from tuiapp.view.grid import grid_size
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.text_view import TextView

LEAST_WIDTH = 100
"""From this width of the screen on there is room for more than one chart, and more than one panel."""

ROOMY, LEAST = (37, 13), (37, 10)
"""Cells across and down of a chart of a run, with its border; the least only where what is learned has no room else."""

MOST_LISTED = 0.15
"""Share of the height for the last values of all metrics, where these are more than charts."""

NAME_CELLS, VALUE_CELLS, GAP_CELLS = 24, 9, 3
"""Cells of a metric in that list: of its name at most, of its value, and between two."""

LEAST_ACROSS = 3

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
