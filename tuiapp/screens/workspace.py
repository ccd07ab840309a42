"""The list of runs and the charts of the marked ones: beside it, below it, or in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual.containers import Container, Vertical
from textual.timer import Timer
from textual.widget import Widget

from tuiapp.screens.chart_memory import ChartMemory
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.view.grid import LEAST_HEIGHT
from tuiapp.widgets.run_table import RunTable

if TYPE_CHECKING:
    from tuiapp.screens.runs_charts import RunsCharts

HIGH = 34
"""From this height on the charts are below the list, and below a short one that leaves room for them."""

WIDE = 150
"""From this width on they are beside it; where there is no room for both, either the list or the charts are shown."""

LEAST_ROWS = 4
"""Of a list that scrolls above the charts of an open group."""

AROUND = 8
"""Lines of the heading, the details and the footer."""

FOLLOW_S = 0.15
"""How long the cursor rests on a run before its journal is read; and the charts' delay after the first picture."""


class Charted(NamedTuple):
    """The runs whose curves are shown."""

    runs: Sequence[RunInfo] = ()
    places: Mapping[RunDir, int] = {}
    """Run → the index of its letter and colour."""
    groups: Mapping[int, str] = {}
    """Names of those that have a place together."""
    unlike: Sequence[int] = ()
    """Places of those whose mean says nothing: they have a line each."""
    objective: str = ""
    """The metric of the first chart."""
    left_out: int = 0
    """Runs of the group for which there are no letters."""
    is_open: bool = False
    """A group is open: its charts come before rows of the list that fit."""


class Workspace(Container):
    """Makes the charts when they are first shown, after the list's first picture."""

    def __init__(self, *children: Widget) -> None:
        """Takes what stands in the list's place."""
        super().__init__(Vertical(*children, id="list"))
        self._charts: RunsCharts | None = None
        self._memory = ChartMemory(self)
        self._wanted = self._memory.view.charts
        """Whether there are charts where there is room for both."""
        self._alone = False
        """Whether the charts have the list's place where there is not."""
        self._charted = Charted()
        self._timer: Timer | None = None

    @property
    def shows_charts(self) -> bool:
        """Whether there are charts, with or without the list."""
        return self.has_class("-charts")

    def chart(self, charted: Charted, *, at_once: bool) -> None:
        """Shows the curves of these runs: at once, or when the cursor rests on them."""
        self._charted = charted
        self._arrange()
        if self._timer is not None:
            self._timer.stop()
        if at_once and self._charts is not None:
            self.call_later(self._follow)
        else:
            self._timer = self.set_timer(FOLLOW_S, self._follow)

    async def _follow(self) -> None:
        if not self.shows_charts or not self.is_attached:
            return
        if self._charts is None:
            from tuiapp.screens.runs_charts import RunsCharts

            self._charts = RunsCharts()
            await self.mount(self._charts)
        self._charts.show(self._charted)

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        size, rows = self.screen.size, len(self.query_one(RunTable).rows)
        below = size.height >= min(HIGH, AROUND + 1 + rows + LEAST_HEIGHT)
        beside = not below and size.width >= WIDE
        shares = self._charted.is_open and size.height >= AROUND + 1 + LEAST_ROWS + LEAST_HEIGHT
        scrolls = shares and not below and not beside
        below |= scrolls
        alone = not beside and not below
        charts = bool(self._charted.runs) and (self._alone if alone else self._wanted)
        classes = {"-beside": beside, "-below": below, "-scrolls": scrolls, "-alone": alone, "-charts": charts}
        for name, is_set in classes.items():
            self.set_class(is_set, name)
        self.screen.set_class(alone and charts, "-only-charts")

    async def toggle(self) -> None:
        """Shows or hides the charts; where there is room for one only, in place of the list."""
        if not self._charted.runs:
            return
        if self.has_class("-alone"):
            self._alone = not self._alone
        else:
            self._wanted = not self._wanted
            self._memory.keep(charts=self._wanted)
        self._arrange()
        await self._follow()
        if self._charts is not None and self.has_class("-alone") and self._alone:
            self._charts.grid.main.focus()
        elif not self.shows_charts:
            self._to_list()

    async def on_runs_charts_left(self) -> None:
        """Goes back to the list, which the charts may hide."""
        if self.has_class("-alone"):
            await self.toggle()
        else:
            self._to_list()

    def _to_list(self) -> None:
        self.query_one(RunTable).focus()

    def on_unmount(self) -> None:
        self._memory.close()
