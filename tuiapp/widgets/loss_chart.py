"""Is it learning: the loss or another metric, by step or by time, with its evaluations."""

from __future__ import annotations

import time

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widgets import Static

from trainers.contract.metrics import LOSS
from trainers.state.run_state import RunState
from tuiapp.view.chart import Look, build_chart
from tuiapp.widgets.chart_legend import beyond_words, legend, line_of, why_empty
from tuiapp.widgets.plot import Plot
from tuiapp.widgets.zoomable import Zoomable

NEVER = (0.0, -1, 0)

MOST_SHARE = 0.03
"""Of a core, for drawing a chart: with hundreds of ranks it is drawn less often."""


class LossChart(Zoomable):
    """The curves, redrawn only when they change."""

    DEFAULT_CSS = """
    LossChart {
        padding: 0 1;

        #legend { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    metric: reactive[str] = reactive(LOSS)
    smoothing: reactive[float] = reactive(0.6)
    """Weight of the past in the moving average, in [0, 1)."""
    log_scale: reactive[bool] = reactive(False)
    rank: reactive[int | None] = reactive(None)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.add_class("-empty")
        self._state = RunState()
        self._due = False
        self._drawn: tuple[float, float, int] = NEVER
        """Time of the last drawing, the last step in it, and the last evaluation."""
        self._took_s = 0.0
        """Processor time of the last drawing."""
        self._finished = False
        self._fitted: Size | None = None
        self._subtitle = ""
        self.drawings = 0

    def compose(self) -> ComposeResult:
        yield Static(id="legend", markup=False)
        yield Static(why_empty(LOSS, live=True), id="instead", markup=False)
        yield Plot(id="plot")

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._answer_key())
        for name in ("smoothing", "log_scale", "rank", "window", "every"):
            self.watch(self, name, self._answer_key, init=False)
        self.set_interval(1.0, self.draw_if_due)

    def on_resize(self) -> None:
        self.cursor = None
        self._make_due()
        self.draw_if_due()

    @on(Plot.Resized)
    def _fit(self) -> None:
        if self.plot.size != self._fitted:
            self._make_due()
            self.draw_if_due()

    def show(self, state: RunState) -> None:
        """Shows a run's curves at once, or within 2 s if the drawing would look the same."""
        if state is not self._state:
            self._state, self._drawn = state, NEVER
        self._due = True
        last = state.last_checkpoint
        subtitle = f"checkpoint: step {last.step:,}{' · best' if last.best else ''}" if last else ""
        if subtitle != self._subtitle:
            self._subtitle = subtitle
            self.border_subtitle = Content(subtitle)
        if not state.is_live and not self._finished and self.cursor is None:
            # The last drawing must include the end.
            self._drawn = NEVER
        self._finished = not state.is_live
        self.draw_if_due()

    @property
    def state(self) -> RunState:
        return self._state

    def watch_metric(self) -> None:
        self.cursor = None
        self._answer_key()

    def watch_axis(self) -> None:
        self.window = self.cursor = None
        self._answer_key()

    def watch_cursor(self, old: int | None, new: int | None) -> None:
        if not self.is_mounted:
            return
        if new is None:
            self._answer_key()
        elif not self.drawn.is_empty:
            self._show_legend()
            self.show_cursor()

    def _answer_key(self) -> None:
        if self.is_mounted:
            self._make_due()
            self.draw_if_due()

    def _make_due(self) -> None:
        self._due = True
        self._drawn = NEVER

    def _would_show(self) -> bool:
        """Whether a drawing would differ: curves longer by a point, or a second has passed."""
        moment, step, evaluated = self._drawn
        if time.monotonic() - moment < self._took_s / MOST_SHARE:
            return False
        grown = (self._state.step - step) * 2 * self.plot.columns >= self._state.step
        return grown or evaluated != self._state.curves.evaluated or time.monotonic() - moment >= 1.0

    def draw_if_due(self) -> None:
        asked = self._drawn == NEVER
        if not self._due or not self.is_on_screen or (self.cursor is not None and not asked) or not self._would_show():
            return
        state, plot = self._state, self.plot
        if plot.display and not plot.size:
            # Shown but not laid out yet; it draws when it is resized.
            return
        self._due = False
        self._drawn = (time.monotonic(), state.step, state.curves.evaluated)
        # A hidden plot has no size: it gets the panel's, less the legend.
        columns = plot.columns if plot.display else max(2, self.content_size.width - (plot.columns and 8))
        rows = plot.rows if plot.display else max(2, self.content_size.height - 3)
        look = Look(self.metric, self.axis, self.smoothing, self.log_scale, self.window, self.every, self.rank)
        began = time.thread_time()
        self.drawn = build_chart(state, look, columns=2 * columns, rows=rows)
        self._took_s = time.thread_time() - began
        self._show_legend()
        if self.drawn.is_empty:
            self.explain(self._why_empty())
        elif not plot.display:
            self.explain("")
            self._make_due()
            self.call_after_refresh(self.draw_if_due)
        else:
            plot.show(self.drawn, self.cursor)
            self._fitted = plot.size
            self.drawings += 1

    @property
    def is_on_screen(self) -> bool:
        return self.is_mounted and self.display and self.region.area > 0

    def _why_empty(self) -> str:
        if self.window is not None:
            return "no data in this range: 0 shows the whole run"
        return why_empty(self.metric, live=self._state.is_live)

    def _show_legend(self) -> None:
        width = self.content_size.width
        left = legend(self.drawn, self.metric, self.cursor, dark=self.app.current_theme.dark, width=width)
        settings = self._settings() if self.cursor is None else ["paused", "v: resume"]
        self.query_one("#legend", Static).update(line_of(left, settings, width), layout=False)

    def _settings(self) -> list[str]:
        settings = [
            *beyond_words(self.drawn, self.metric, every=self.every),
            "logarithmic" if self.log_scale else "linear",
            f"by {self.axis}",
            f"smoothing {self.smoothing:g}" if self.smoothing else "not smoothed",
        ]
        return [f"showing {100 * self.share_in_sight:.3g} %", *settings] if self.window else settings
