"""Does it learn: the loss of each rank by step, with the evaluations on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from tuiapp.state.chart import Chart, build_chart
from tuiapp.state.run_facts import RunFacts
from tuiapp.widgets.palette import MUTED, series_color, to_rgb

if TYPE_CHECKING:
    from textual_plotext import PlotextPlot

REDRAW_S = 0.2
"""Between two drawings: a drawing costs some 20 ms, in which no key is served."""

SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98)

GAP_COLOR = "#D55E00"
"""Okabe & Ito's vermillion: reads on dark and on light."""

AXIS_CELLS = 8
"""What the labels of the loss axis take."""


class LossChart(Vertical):
    """The curves; redrawn at most five times a second, and only when they changed."""

    DEFAULT_CSS = """
    LossChart {
        background: $surface;
        padding: 0 1;

        #legend { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #waiting { height: 1fr; content-align: center middle; color: $text-muted; }
        #plot { display: none; }
        &.-drawn #plot { display: block; }
        &.-drawn #waiting { display: none; }
    }
    """

    smoothing: reactive[float] = reactive(0.6)
    """Weight of the past in the moving average, from 0 to below 1."""

    log_scale: reactive[bool] = reactive(False)
    """Whether the loss axis is logarithmic."""

    rank: reactive[int | None] = reactive(None)
    """The one rank to draw; None for all."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunFacts()
        self._chart = Chart()
        self._due = False
        self._drawn: tuple[float, float, int, int] = (0.0, 0.0, 0, 0)
        """When the curves were last drawn, up to which step, with how many evaluations and alerts."""
        self._finished = False
        self._subtitle = ""
        self.drawings = 0
        """How often the curves were drawn."""

    def compose(self) -> ComposeResult:  # noqa: D102
        # plotext takes a fifth of a second to import: not before there is a chart.
        from textual_plotext import PlotextPlot

        yield Static(id="legend", markup=False)
        yield Static("waiting for the first step…", id="waiting", markup=False)
        yield PlotextPlot(id="plot")

    def on_mount(self) -> None:
        """Begin to draw; follow the theme."""
        self.set_interval(REDRAW_S, self.draw_if_due)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._make_due())

    def on_resize(self) -> None:
        """Fit the curves anew."""
        self._make_due()
        self.draw_if_due()

    def show(self, state: RunFacts) -> None:
        """Show the curves of a run, within a fifth of a second, or a second where that shows nothing new."""
        if state is not self._state:
            self._state = state
            self._drawn = (0.0, 0.0, 0, 0)
        self._due = True
        last = state.last_checkpoint
        subtitle = f"checkpoint: step {last.step:,}{' · best' if last.best else ''}" if last else ""
        if subtitle != self._subtitle:
            self._subtitle = subtitle
            self.border_subtitle = Content(subtitle)
        if not state.is_live and not self._finished:
            # The last drawing must not stand short of the end.
            self._drawn = (0.0, 0.0, 0, 0)
        self._finished = not state.is_live
        if not self.drawings:
            self.draw_if_due()

    def change_smoothing(self, by: int) -> None:
        """Take the next stronger or weaker smoothing."""
        place = SMOOTHINGS.index(self.smoothing) + by
        self.smoothing = SMOOTHINGS[min(len(SMOOTHINGS) - 1, max(0, place))]

    def watch_smoothing(self) -> None:
        """A key was pressed."""
        self._answer_key()

    def watch_log_scale(self) -> None:
        """A key was pressed."""
        self._answer_key()

    def watch_rank(self) -> None:
        """A key was pressed."""
        self._answer_key()

    def _answer_key(self) -> None:
        """Say at once what is shown; draw when that is on the screen."""
        if self.is_mounted:
            self._show_legend(self._chart)
            self._make_due()
            self.call_after_refresh(self.draw_if_due)

    def _make_due(self) -> None:
        """Draw next time, whether the run went on or not."""
        self._due = True
        self._drawn = (0.0, 0.0, 0, 0)

    def _would_show(self, columns: int) -> bool:
        """Whether a drawing would show something new: curves longer by a point, or a second's worth."""
        moment, step, evaluations, failures = self._drawn
        grown = self._state.step - step
        return (
            grown * columns >= self._state.step
            or evaluations != len(self._state.evaluations)
            or failures != len(self._state.alerts)
            or time.monotonic() - moment >= 1.0
        )

    def draw_if_due(self) -> None:
        """Draw, if there is something to draw that is not drawn yet."""
        columns = 2 * max(10, self.content_size.width - AXIS_CELLS)
        if not self._due or not self.is_on_screen or not self._would_show(columns):
            return
        state = self._state
        self._due = False
        self._drawn = (time.monotonic(), state.step, len(state.evaluations), len(state.alerts))
        self._chart = chart = build_chart(
            state,
            columns=columns,
            rows=max(4, self.content_size.height - 2),
            smoothing=self.smoothing,
            log=self.log_scale,
            rank=self.rank,
        )
        self._show_legend(chart)
        self.set_class(not chart.is_empty, "-drawn")
        if not chart.is_empty:
            from textual_plotext import PlotextPlot

            self._draw(self.query_one(PlotextPlot), chart)
            self.drawings += 1
        elif not state.is_live:
            self.query_one("#waiting", Static).update("no step was taken")

    @property
    def is_current(self) -> bool:
        """Whether what is drawn is all that there is to draw."""
        return not self._due or not self.is_on_screen

    @property
    def is_on_screen(self) -> bool:
        """Whether it can be seen at all: another panel may have the room."""
        return self.is_mounted and self.display and self.region.area > 0

    def _color(self, index: int) -> str:
        dark = self.app.current_theme.dark
        if index < 0:
            return "#777777" if dark else "#AAAAAA"
        return series_color(index, dark=dark)

    def _draw(self, plot: PlotextPlot, chart: Chart) -> None:
        plt = plot.plt
        plt.clear_figure()
        plt.xaxes(True, False)
        plt.yaxes(True, False)
        low, high = chart.y_range
        plt.xlim(*chart.x_range)
        plt.ylim(low, high)
        plt.xticks([x for x, _ in chart.x_ticks], [label for _, label in chart.x_ticks])
        plt.yticks([y for y, _ in chart.y_ticks], [label for _, label in chart.y_ticks])
        for curve in chart.curves:
            color = to_rgb(self._color(curve.color))
            for piece in curve.pieces:
                draw = plt.plot if len(piece) > 1 else plt.scatter
                draw([x for x, _ in piece], [y for _, y in piece], marker="braille", color=color)
        if chart.evaluations:
            color = to_rgb("#FFFFFF" if self.app.current_theme.dark else "#000000")
            plt.scatter([x for x, _ in chart.evaluations], [y for _, y in chart.evaluations], marker="◆", color=color)
        if chart.gaps:
            plt.scatter(chart.gaps, [high] * len(chart.gaps), marker="✕", color=to_rgb(GAP_COLOR))
        plot.refresh()

    def _show_legend(self, chart: Chart) -> None:
        parts: list[Content] = []
        if len(chart.curves) > 1 and chart.curves[0].color < 0:
            mean = Content.assemble("mean of ", str(len(self._state.ranks)), " ranks ", ("━", self._color(0)))
            parts += [mean, Content.assemble("least–greatest ", ("━", self._color(-1)))]
        elif chart.curves:
            parts.append(Content("rank"))
            parts += [Content.assemble(f"{c.label} ", ("━", self._color(c.color))) for c in chart.curves]
        if chart.evaluations:
            parts.append(Content("test ◆"))
        if chart.gaps:
            parts.append(Content.styled("not finite ✕", "bold $text-warning"))
        smoothing = f"smoothing {self.smoothing:g}" if self.smoothing else "not smoothed"
        scale = "logarithmic" if self.log_scale else "linear"
        legend = Content("  ").join(parts)
        settings = Content.styled(f"{smoothing} · {scale} · by step", MUTED)
        gap = self.content_size.width - legend.cell_length - settings.cell_length
        if gap > 1:
            legend = Content.assemble(legend, " " * gap, settings)
        self.query_one("#legend", Static).update(legend, layout=False)
