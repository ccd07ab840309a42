"""All metrics as small charts, some on a page, any of them large."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widgets import Input, Static

from tuiapp.screens.chart_grid import FAR_CELLS, ChartGrid, Layout, chart_keys
from tuiapp.screens.keys import RefusingScreen
from tuiapp.screens.pickers import MAX_NAME, Pins
from tuiapp.trainers.state.known_metrics import by_importance, grouped, metric
from tuiapp.trainers.state.objective import Objective, suggested
from tuiapp.trainers.state.run_state import Topic
from tuiapp.trainers.state.text import plural
from tuiapp.view.chart import ChartOptions
from tuiapp.view.chart_words import setting_words
from tuiapp.view.grid import Pages
from tuiapp.widgets.chart_panel import ChartSource, GridChart, line_of
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.steady_footer import SteadyFooter

PAGE_CELLS = 14
"""Cells kept free in the heading for "page 10 of 12"."""

MOVES = {"left": -1, "right": 1, "far_left": -FAR_CELLS, "far_right": FAR_CELLS}

LOOK_S = 2.0
"""Time between two looks whether what was constant has varied."""

LARGE_ONLY = ("cursor", "in", "out")
"""Keys that work in a large chart only."""


class MetricsGrid(RefusingScreen[None]):
    """Covers the screen that it belongs to, which calls `update` when there is something new to draw."""

    CSS_PATH = "metrics_grid.tcss"
    MANUAL = "run"

    AUTO_FOCUS: ClassVar[str | None] = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enlarge(True)", "Large", tooltip="The chart large", id="grid.large"),
        Binding("enter", "enlarge(False)", "All charts", id="grid.all"),
        Binding("pagedown", "turn(1)", "Next", key_display="pgdn", tooltip="Next page or chart", id="grid.next"),
        Binding("pageup", "turn(-1)", "Previous page or chart", key_display="pgup", id="grid.previous", show=False),
        Binding("up", "move_by_row(-1)", "Chart above", id="grid.up", show=False),
        Binding("down", "move_by_row(1)", "Chart below", id="grid.down", show=False),
        Binding("home", "first", "First chart", id="grid.first", show=False),
        Binding("end", "last", "Last chart", id="grid.last", show=False),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words", id="grid.filter"),
        Binding("f2", "pin", "Pin", tooltip="A chart in all runs", id="grid.pin"),
        *chart_keys("grid", "log", "axis", without=("metric", "grid", "several")),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", id="app.help"),
        Binding("f3", "devices", "Devices", tooltip="Watch the devices", id="app.devices", show=False),
        Binding("escape,G", "back", "Back", key_display="esc", id="grid.back"),
        Binding("q", "app.quit", "Quit", id="app.quit-letter"),
    ]

    large: reactive[bool] = reactive(False, init=False, bindings=True)
    """Whether the selected chart has all the room."""

    def __init__(
        self,
        source: ChartSource,
        options: ChartOptions,
        pages: Pages,
        *,
        objective: Objective | None = None,
        pins: Pins | None = None,
        show_devices: Callable[[], None] | None = None,
    ) -> None:
        """`options` are those of all charts to begin with; `pages` keeps the selection for the next time.

        The chart of the `objective` is the first; by default of what the metrics suggest.
        `pins` has the metrics that the screen beneath has charts of.
        `show_devices` shows those of the run's nodes on the screen beneath; without it F3 shows this machine's.
        """
        super().__init__()
        self._show_devices, self._pins, self._objective = show_devices, pins, objective
        self._source, self._pages = source, pages
        options = replace(options, window=None, full_y_range=False, among=None)
        self.charts: ChartGrid[GridChart] = ChartGrid(
            source,
            lambda _: GridChart(source, options),
            self._layout,
            shared=("axis", "smoothing", "log", "form", "full_y_range"),
            remembers=False,
            id="charts",
        )
        self._groups: dict[str, list[str]] = {"": []}
        """The metrics that match the filter, by group."""
        self._constants: dict[str, float] = {}
        """Values of the metrics that never varied: a line shows them, without a chart."""
        self._looked_at = 0.0

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        hint = "match all words: train loss …"
        yield Input(placeholder=hint, id="filter", max_length=MAX_NAME, compact=True)
        yield Static(id="legends", markup=False)
        yield Static(id="instead", markup=False)
        yield self.charts
        yield Static(id="constants", markup=False)
        yield SteadyFooter("chart('axis')", "chart('log')")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.watch(self.charts.main, "drawn", self.update_heading, init=False)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    @property
    def visible_charts(self) -> list[GridChart]:
        shown = self.is_mounted and self.charts.display
        return [chart for chart in self.charts.panels if chart.display] if shown else []

    def follow(self, topics: frozenset[Topic]) -> None:
        """Shows what is new in the run's state."""
        if "curves" in topics:
            self.update()
        elif "run" in topics:
            self.update_heading()

    def update(self) -> None:
        """Draws what is new."""
        if self.is_mounted:
            if self._source.names() != self.charts.names or self._some_vary():
                self._arrange()
            self.charts.update()

    def _some_vary(self) -> bool:
        """Returns whether what was constant has varied; looks only now and then."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return False
        self._looked_at = time.monotonic()
        return any(self._source.constant(name) != value for name, value in self._constants.items())

    def _arrange(self) -> None:
        """Lays out the charts of the page on which the selected one is."""
        if not self.is_mounted:
            return
        pages = self._pages
        every = self._source.names()
        self._groups = grouped(every, self._filter)
        matching = [name for group in self._groups.values() for name in group]
        values = {name: value for name in matching if (value := self._source.constant(name)) is not None}
        self._constants = values if len(values) < len(matching) else {}
        objective = self._objective or suggested(dict.fromkeys(every, 1))
        varied = [name for name in matching if name not in self._constants]
        names = by_importance(varied, objective.name if objective else "")
        self._show_constants()
        legends = self.query_one("#legends")
        legends.display = self._source.names_curves and bool(names)
        other_lines = 2 + sum(self.query_one(f"#{line}").display for line in ("filter", "legends", "constants"))
        pages.show(names, self.size.width, self.size.height - other_lines)
        self.charts.lay_out()
        for chart in self.charts.panels:
            name = chart.options.metric
            chart.large = self.large
            chart.selected = name == pages.selected and not self.large
            chart.pinned = self._pins is not None and name in self._pins.pinned
        instead = self.query_one("#instead", Static)
        instead.display, self.charts.display = not names, bool(names)
        if not names:
            filtered = "No metric matches all these words. Escape shows all."
            instead.update(filtered if self._filter else "waiting for the first metric…")
        self.update_heading()
        self.refresh_bindings()

    def _layout(self, names: Sequence[str], size: Size) -> Layout:
        pages = self._pages
        if self.large and pages.names:
            return Layout([pages.selected])
        return Layout(pages.visible, pages.columns, pages.rows)

    def _show_constants(self) -> None:
        """Shows what never varied, with its value."""
        line = self.query_one("#constants", Static)
        line.display = bool(self._constants)
        parts = [f"{metric(name).label} {metric(name).format(value)}" for name, value in self._constants.items()]
        line.update(Content.assemble(("constant  ", "bold"), " · ".join(parts)))

    @property
    def _filter(self) -> str:
        return self.query_one("#filter", Input).value

    def update_heading(self) -> None:
        """Shows the state of the run, the groups of metrics, and the charts' settings."""
        if not self.is_mounted:
            return
        pages, width = self._pages, self.size.width - 2
        groups = self._groups
        mine = metric(pages.selected).group
        parts = [self._source.title()]
        for group, names in groups.items():
            if names:
                label = f"{group or 'metrics'} {len(names)}"
                parts.append(Content.styled(label, "bold" if group == mine else MUTED))
        room = max(1, width - PAGE_CELLS)
        if sum(part.cell_length + 2 for part in parts) > room:
            label = f"{mine or 'metrics'} {len(groups[mine])}"
            parts[1:] = [Content.styled(label, "bold"), Content.styled(plural(len(groups), "group"), MUTED)]
        left = Content("  ").join(parts).truncate(room, ellipsis=True)
        position = f"{pages.place + 1} of {len(pages.names)}" if self.large else ""
        if not self.large and pages.count > 1:
            position = f"page {pages.page + 1} of {pages.count}"
        chart, options = self.charts.main.drawn, self.charts.main.options
        clipped = ["clipped"] if self.large or options.full_y_range else []
        rows = ["rows"] if self.large else []
        settings = setting_words(chart, options, *rows, "sight", "axis", *clipped, "log", "smoothing")
        settings = [position, *settings] if position and pages.names else settings
        self.query_one("#heading", Static).update(line_of(left, settings, width), layout=False)
        if (legends := self.query_one("#legends", Static)).display:
            dark = self.app.current_theme.dark
            legends.update(self._source.legend(chart, options, None, dark=dark, width=width), layout=False)

    def watch_large(self) -> None:
        self._show_whole()
        self._arrange()

    def _show_whole(self) -> None:
        """Ends zooming and reading values: another chart gets the room."""
        self.charts.main.cursor = None
        self.charts.main.change(window=None)

    def why_not(self, action: str, *parameters: object) -> str:
        """While charts are small, the keys that move the cursor select, and those that read values and zoom are off."""
        if action == "enlarge" and self.large is parameters[0]:
            return "The chart is large already." if self.large else "All charts are shown already."
        if action == "pin" and self._pins is None:
            return "Metrics are pinned on the Run screen: of what one run reports."
        if action == "turn" and not self.large and self._pages.count == 1:
            return "All charts are on this page."
        if action == "chart" and not self.large and parameters[0] in LARGE_ONLY:
            return "Enter makes the chart large: then + zooms, v reads values."
        return ""

    def action_pin(self) -> None:
        if self._pins and self._pages.names:
            self._pins.toggle_pin(self._pages.selected)
            self._arrange()

    def action_chart(self, what: str) -> None:
        if self.large or what not in MOVES:
            self.charts.do(what)
        else:
            self._select(MOVES[what])

    def _select(self, by: int) -> None:
        page = self._pages.page
        self._pages.move(by)
        self._show_whole()
        if self.large or self._pages.page != page:
            self._arrange()
            return
        for chart in self.visible_charts:
            chart.selected = chart.options.metric == self._pages.selected
        self.update_heading()

    def action_move_by_row(self, by: int) -> None:
        self._select(by if self.large else by * self._pages.columns)

    def action_turn(self, by: int) -> None:
        if self.large:
            self._select(by)
        else:
            self._pages.turn(by)
            self._arrange()

    def action_first(self) -> None:
        self._select(-len(self._pages.names))

    def action_last(self) -> None:
        self._select(len(self._pages.names))

    def action_enlarge(self, large: bool) -> None:
        self.large = large and bool(self._pages.names)

    def action_filter(self) -> None:
        self.large = False
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    @on(Input.Changed)
    def _search(self) -> None:
        self._arrange()

    @on(Input.Submitted)
    def _leave_filter(self, event: Input.Submitted) -> None:
        event.input.display = bool(event.value)
        self.set_focus(None)

    async def action_devices(self) -> None:
        if self._show_devices is None:
            await self.run_action("app.devices")
        else:
            self.dismiss()
            self._show_devices()

    def action_back(self) -> None:
        """Closes the cursor, else the large chart, else the filter, else the screen."""
        field = self.query_one("#filter", Input)
        if self.charts.close_cursor():
            return
        if self.large:
            self.large = False
        elif field.display:
            field.value, field.display = "", False
            self.set_focus(None)
        else:
            self.dismiss()

    @on(GridChart.Selected)
    def _select_clicked(self, event: GridChart.Selected) -> None:
        if not self.large:
            self._pages.selected = event.chart.options.metric
            self._arrange()
            self.large = event.twice
