"""All metrics as small charts, some on a page, any of them large."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Input, Static

from trainers.state.curves import Axis
from trainers.state.known_metrics import grouped, metric
from trainers.state.text import plural
from tuiapp.screens.grid_sources import GridSource
from tuiapp.screens.metric_list import MAX_NAME
from tuiapp.terminal.covered_screen import CoveredScreenFix
from tuiapp.view.chart import Look
from tuiapp.view.grid import MOST, Pages
from tuiapp.widgets.chart_legend import beyond_words, line_of
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.grid_chart import GridChart
from tuiapp.widgets.steady_footer import SteadyFooter
from tuiapp.widgets.zoomable import FAR_CELLS, next_smoothing, view_actions, view_keys

REDRAW_S = 0.2
SLOW_REDRAW_S = 1.0
"""Between two drawings while the curves grow by less than a point."""

DRAW_BUDGET_S = 0.01
"""Longest time for drawing before keys are served and the screen is painted, but for the last chart begun."""

PAGE_CELLS = 14
"""Kept free in the heading for "page 10 of 12"."""

MOVES = {"left": -1, "right": 1, "far_left": -FAR_CELLS, "far_right": FAR_CELLS}


class MetricsGrid(CoveredScreenFix[None]):
    """Covers the screen that it belongs to, which calls `update` when there is something new to draw."""

    CSS_PATH = "metrics_grid.tcss"
    MANUAL = "run"

    AUTO_FOCUS: ClassVar[str | None] = ""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enlarge", "Large", tooltip="A chart large, or all", id="grid.large"),
        Binding("pagedown", "turn(1)", "Next page", key_display="pgdn", tooltip="Next page or chart", id="grid.next"),
        Binding("pageup", "turn(-1)", "Previous page or chart", key_display="pgup", id="grid.previous", show=False),
        Binding("up", "move_by_row(-1)", "Chart above", id="grid.up", show=False),
        Binding("down", "move_by_row(1)", "Chart below", id="grid.down", show=False),
        Binding("home", "first", "First chart", id="grid.first", show=False),
        Binding("end", "last", "Last chart", id="grid.last", show=False),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words", id="grid.filter"),
        Binding("y", "toggle_log_scale", "Log y", id="grid.log"),
        Binding("t", "axis", "Axis", id="grid.axis"),
        Binding("left_square_bracket", "smooth(-1)", "Less smooth", key_display="[", id="grid.rougher", show=False),
        Binding("right_square_bracket", "smooth(1)", "Smoother", key_display="]", id="grid.smoother", show=False),
        *view_keys("grid", show=False),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", id="app.help"),
        Binding("f3", "devices", "Devices", tooltip="Watch the devices", id="app.devices", show=False),
        Binding("escape,G", "back", "Back", key_display="esc", id="grid.back"),
        Binding("q", "app.leave", "Leave", id="app.leave-letter"),
    ]

    axis: reactive[Axis] = reactive("step", init=False)
    log_scale: reactive[bool] = reactive(False, init=False)
    smoothing: reactive[float] = reactive(0.6, init=False)
    """Weight of the past in the moving average, in [0, 1)."""
    large: reactive[bool] = reactive(False, init=False, bindings=True)
    """Whether the selected chart has all the room."""

    def __init__(
        self, source: GridSource, look: Look, pages: Pages, *, show_devices: Callable[[], None] | None = None
    ) -> None:
        """`look` gives the settings of all charts to begin with; `pages` keeps the selection for the next time.

        `show_devices` shows those of the run's nodes on the screen beneath; without it F3 shows this machine's.
        """
        super().__init__()
        self._show_devices = show_devices
        self._source, self._pages = source, pages
        self.set_reactive(MetricsGrid.axis, look.axis)
        self.set_reactive(MetricsGrid.log_scale, look.log)
        self.set_reactive(MetricsGrid.smoothing, look.smoothing)
        self._charts = [GridChart() for _ in range(MOST)]
        self._stale: dict[GridChart, None] = {}
        """Still to be drawn, a few at a time."""
        self._draws = self._due = False
        self._drawn = (0.0, 0)
        """Time of the last drawing of a page, and the last step in it."""
        self._does = view_actions(lambda: self._charts[0])

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        hint = "match all words: train loss …"
        yield Input(placeholder=hint, id="filter", max_length=MAX_NAME, compact=True)
        yield Static(id="instead", markup=False)
        with Container(id="charts"):
            yield from self._charts
        yield SteadyFooter("axis", "toggle_log_scale")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        large = self._charts[0]
        for name in ("window", "every"):
            self.watch(large, name, self._draw_all, init=False)
        self.watch(large, "cursor", self._move_cursor, init=False)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw_all())
        self.set_interval(REDRAW_S, self._draw_if_due)
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    @property
    def visible_charts(self) -> list[GridChart]:
        return [chart for chart in self._charts if chart.display] if self.is_mounted else []

    def update(self) -> None:
        """Draws the page within 0.2 s, or 1 s if it would look the same."""
        self._due = True

    def _draw_if_due(self) -> None:
        # The curves are frozen while a cursor reads values.
        if not self._due or self._charts[0].cursor is not None:
            return
        moment, step = self._drawn
        columns = max((2 * chart.plot.columns for chart in self.visible_charts), default=0)
        grown = (self._source.step - step) * columns >= self._source.step
        if grown or not columns or time.monotonic() - moment >= SLOW_REDRAW_S:
            self._arrange()

    def _arrange(self) -> None:
        """Lays out the charts of the page on which the selected one is, and draws them."""
        if not self.is_mounted:
            return
        pages, others = self._pages, 2 + self.query_one("#filter").display
        names = [name for group in grouped(self._source.names(), self._filter).values() for name in group]
        pages.show(names, self.size.width, self.size.height - others)
        self._due, self._drawn = False, (time.monotonic(), self._source.step)
        shown = [pages.selected] if self.large and names else pages.visible
        grid = self.query_one("#charts")
        columns, rows = (1, 1) if self.large else (pages.columns, pages.rows)
        grid.styles.grid_size_columns, grid.styles.grid_size_rows = columns, rows
        for place, chart in enumerate(self._charts):
            chart.display = place < len(shown)
            chart.name_shown = shown[place] if chart.display else ""
            chart.large = self.large
            chart.select(chart.name_shown == pages.selected and not self.large)
        instead = self.query_one("#instead", Static)
        instead.display, grid.display = not names, bool(names)
        if not names:
            instead.update(
                "No metric matches all these words. Escape shows all."
                if self._filter
                else "waiting for the first metric…"
            )
        self._draw_all()

    @property
    def _filter(self) -> str:
        return self.query_one("#filter", Input).value

    def _draw_all(self) -> None:
        self._stale = dict.fromkeys(self.visible_charts)
        self._show_heading()
        self._draw_stale()

    def _draw_stale(self) -> None:
        if self._draws or not self._stale:
            return
        self._draws = True
        self.call_later(self._draw_some)

    def _draw_some(self) -> None:
        self._draws, until = False, time.monotonic() + DRAW_BUDGET_S
        while self._stale and time.monotonic() < until:
            chart = next(iter(self._stale))
            del self._stale[chart]
            self._draw(chart)
        if self._stale:
            self._draws = True
            # In between, what is drawn is painted, and keys are served.
            self.call_after_refresh(self._draw_some)

    def _draw(self, chart: GridChart) -> None:
        plot, name = chart.plot, chart.name_shown
        if not chart.display or not chart.size:
            # It is drawn once it is laid out.
            return
        chart.axis = self.axis
        look = Look(name, self.axis, self.smoothing, self.log_scale, chart.window, self._charts[0].every)
        columns = plot.columns if plot.size else max(2, chart.size.width - 8)
        rows = plot.rows if plot.size else max(2, chart.size.height - 3)
        drawn = self._source.build(look, columns=2 * columns, rows=rows)
        chart.show(drawn, metric(name).label, self._source.latest(name), self._why_empty(chart))
        if self.large:
            self._show_heading()
            self._show_legend()

    def _why_empty(self, chart: GridChart) -> str:
        if chart.window is not None:
            return "no data in this range: 0 shows the whole run"
        if self.log_scale:
            return "no value above 0 for a logarithmic axis: y makes it linear"
        return self._source.why_empty(chart.name_shown)

    @on(GridChart.Stale)
    def _draw_again(self, event: GridChart.Stale) -> None:
        self._stale[event.chart] = None
        self._draw_stale()

    def update_heading(self) -> None:
        if self.is_mounted:
            self._show_heading()

    def _show_heading(self) -> None:
        pages, width = self._pages, self.size.width - 2
        groups = grouped(pages.names)
        mine = metric(pages.selected).group
        parts = [self._source.title()]
        for group, names in groups.items():
            if names:
                said = f"{group or 'metrics'} {len(names)}"
                parts.append(Content.styled(said, "bold" if group == mine else MUTED))
        room = max(1, width - PAGE_CELLS)
        if sum(part.cell_length + 2 for part in parts) > room:
            said = f"{mine or 'metrics'} {len(groups[mine])}"
            parts[1:] = [Content.styled(said, "bold"), Content.styled(plural(len(groups), "group"), MUTED)]
        left = Content("  ").join(parts).truncate(room, ellipsis=True)
        place = f"{pages.place + 1} of {len(pages.names)}" if self.large else f"page {pages.page + 1} of {pages.count}"
        large = self._charts[0]
        settings = [
            place if pages.names else "",
            f"showing {100 * large.share_in_sight:.3g} %" if large.window else "",
            f"by {self.axis}",
            *(beyond_words(large.drawn, large.name_shown, every=large.every) if self.large or large.every else ()),
            "logarithmic" if self.log_scale else "",
            f"smoothing {self.smoothing:g}" if self.smoothing else "not smoothed",
        ]
        self.query_one("#heading", Static).update(line_of(left, [s for s in settings if s], width), layout=False)

    def _show_legend(self) -> None:
        chart = self._charts[0]
        look = Look(chart.name_shown, self.axis)
        dark = self.app.current_theme.dark
        chart.show_legend(self._source.legend(chart.drawn, look, chart.cursor, dark=dark))

    def _move_cursor(self) -> None:
        if self._charts[0].cursor is None:
            self._draw_all()
        else:
            self._charts[0].show_cursor()
            self._show_legend()

    def watch_axis(self) -> None:
        self._charts[0].window = self._charts[0].cursor = None
        self._draw_all()

    def watch_log_scale(self) -> None:
        self._draw_all()

    def watch_smoothing(self) -> None:
        self._draw_all()

    def watch_large(self) -> None:
        self._charts[0].window = self._charts[0].cursor = None
        self._arrange()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Of a chart's keys, those that select and the one that shows all values work while it is small."""
        return self.large or parameters[0] in {*MOVES, "whole"} if action == "chart" else True

    def action_chart(self, what: str) -> None:
        if self.large or what not in MOVES:
            self._does[what]()
        else:
            self._select(MOVES[what])

    def _select(self, by: int) -> None:
        page = self._pages.page
        self._pages.move(by)
        self._charts[0].window = self._charts[0].cursor = None
        if self.large or self._pages.page != page:
            self._arrange()
            return
        for chart in self.visible_charts:
            chart.select(chart.name_shown == self._pages.selected)
        self._show_heading()

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

    def action_enlarge(self) -> None:
        self.large = bool(self._pages.names) and not self.large

    def action_axis(self) -> None:
        axes = self._source.axes
        self.axis = axes[(axes.index(self.axis) + 1) % len(axes)]

    def action_toggle_log_scale(self) -> None:
        self.log_scale = not self.log_scale

    def action_smooth(self, by: int) -> None:
        self.smoothing = next_smoothing(self.smoothing, by)

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
        if self._charts[0].cursor is not None:
            self._charts[0].cursor = None
        elif self.large:
            self.large = False
        elif field.display:
            field.value, field.display = "", False
            self.set_focus(None)
        else:
            self.dismiss()

    @on(GridChart.Selected)
    def _select_clicked(self, event: GridChart.Selected) -> None:
        if not self.large:
            self._pages.selected = event.chart.name_shown
            self._arrange()
            self.large = event.twice
