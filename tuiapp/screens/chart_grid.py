"""Charts of one source: laid out, drawn in turn, moved by the same keys on every screen, and seen as last time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget

from tuiapp.library.chart_view import MOST_NAMES, change_view, read_view, view_path
from tuiapp.screens.pickers import MetricList, Pins
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.state.known_metrics import UTILIZATION, first_choice, metric
from tuiapp.trainers.state.series import SMOOTHINGS
from tuiapp.trainers.state.text import sanitize
from tuiapp.view.chart_words import KEYS
from tuiapp.view.heat import LEAST_MEMBERS
from tuiapp.widgets.chart_panel import ChartPanel, ChartSource
from tuiapp.widgets.plot import Plot

SAVE_S = 1.0
"""Time from the last change until it is written."""


class ChartMemory:
    """Reads the view once, and writes changes in a thread: a slow home directory must not delay a key."""

    def __init__(self, charts: Widget, *, title: str = "Charts") -> None:
        """`title` says whose settings they are."""
        self._charts, self._title = charts, title
        self.view, self._problem = read_view()
        self._changes: dict[str, object] = {}
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Reports a damaged file."""
        if self._problem:
            self._report(f"Cannot read {view_path()}: {self._problem}. {self._title} have their defaults.")

    def keep(self, **settings: object) -> None:
        """Writes those settings of `ChartView` that have changed, in a moment."""
        changes = {name: value for name, value in settings.items() if getattr(self.view, name) != value}
        if not changes:
            return
        self.view = msgspec.structs.replace(self.view, **changes)
        self._changes |= changes
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._charts.set_timer(SAVE_S, self._begin_saving)

    def close(self) -> None:
        """Writes what is not written yet."""
        changes, self._changes = self._changes, {}
        if changes and (problem := _save(changes)):
            self._report(problem)

    def _begin_saving(self) -> None:
        changes, self._changes = self._changes, {}
        self._charts.run_worker(partial(self._save_in_thread, changes), thread=True)

    def _save_in_thread(self, changes: dict[str, object]) -> None:
        if problem := _save(changes):
            self._charts.app.call_from_thread(self._report, problem)

    def _report(self, text: str) -> None:
        self._charts.app.notify(sanitize(text), title=self._title, severity="warning", markup=False)


def _save(changes: dict[str, object]) -> str:
    try:
        change_view(changes)
    except OSError as error:
        return f"Cannot write {view_path()}: {error.strerror or error}. These settings are not kept."
    return ""


TICK_S = 3.0
"""Interval at which charts are drawn that had news but were not due yet."""

DRAW_BUDGET_S = 0.01
"""Longest time for drawing before keys are served and the screen is painted, but for the last chart begun."""

FAR_CELLS = 10
"""Cells that shift moves the cursor by."""


class Layout(NamedTuple):
    """The metrics that have a chart, and how these stand."""

    names: Sequence[str | None]
    """The metric of each place; None for a place without a chart."""
    columns: int = 1
    rows: int = 1


Panel = TypeVar("Panel", bound=ChartPanel)
Choose: TypeAlias = Callable[[Sequence[str], Size], Layout]


class ChartGrid(Container, Generic[Panel]):
    """Shows charts of what is chosen among the source's metrics for its size; the first is there in any case."""

    DEFAULT_CSS = """
    ChartGrid { layout: grid; height: 1fr; }
    """

    @dataclass
    class MetricChosen(Message):
        """The user chose the metric of a chart."""

        index: int
        name: str

    def __init__(
        self,
        source: ChartSource,
        make: Callable[[int], Panel],
        choose: Choose | None = None,
        *,
        shared: Collection[str] = ("axis", "smoothing", "window"),
        remembers: bool = True,
        pins: Pins | None = None,
        id: str | None = None,
    ) -> None:
        """`make` returns the panel of a place; `choose` is one chart by default, of what is of most interest.

        `shared` are the options that all charts have in common. With `remembers` they are as last time. `pins` has the
        metrics that the user pinned, where they can be.
        """
        super().__init__(id=id)
        self.source, self._make, self._pins, self._shared = source, make, pins, shared
        self._choose: Choose = choose or (lambda names, size: Layout([self.first(names)]))
        self.memory = ChartMemory(self)
        self._remembers = remembers
        self.chosen = ""
        """The metric that the user chose for the first chart."""
        self.names: Sequence[str] | None = None
        """The source's metrics when charts were laid out; None: they are laid out anew."""
        self._waits = False
        """Whether some charts are drawn after the next painting."""
        self.panels: list[Panel] = []
        self._add()

    def compose(self) -> ComposeResult:
        yield from self.panels

    def on_mount(self) -> None:
        if self._remembers:
            self.memory.begin()
            view = self.memory.view
            self.main.change(axis=view.axis, smoothing=view.smoothing, log=view.log)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.redraw())
        self.set_interval(TICK_S, self._draw_due)

    def on_unmount(self) -> None:
        self.memory.close()

    def on_resize(self) -> None:
        if self.names is not None:
            self.lay_out()

    def _add(self) -> Panel:
        """Makes a panel, with the options that all panels share."""
        panel = self._make(len(self.panels))
        if self.panels:
            panel.change(**self._in_common(self.main))
        self.panels.append(panel)
        self.watch(panel, "options", partial(self._follow, panel), init=False)
        self.watch(panel, "cursor", self._draw_due, init=False)
        return panel

    def lay_out(self) -> None:
        """Lays out the charts of what is chosen now."""
        if not self.is_attached:
            return
        self.names = self.source.names()
        names, columns, rows = self._choose(self.names, self.size)
        self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
        if (missing := len(names) - len(self.panels)) > 0:
            self.mount_all([self._add() for _ in range(missing)])
        for index, (panel, name) in enumerate(zip_longest(self.panels, names)):
            panel.display = name is not None or not index
            if name is not None:
                kept = {"form": self.memory.view.forms.get(name)} if self._remembers else {}
                panel.change(metric=name, **kept)

    def first(self, names: Sequence[str]) -> str:
        """Returns the metric that the user chose, now or the last time, or else the one of most interest."""
        kept = self.memory.view.metric
        return self.chosen or (kept if kept in names else first_choice(name for name in names if name != UTILIZATION))

    def choose_first(self, name: str) -> None:
        """Shows a metric that the user chose for the first chart, here and the next time."""
        self.chosen = name
        self.memory.keep(metric=name)
        self.lay_out()

    @property
    def main(self) -> Panel:
        return self.panels[0]

    @property
    def active(self) -> Panel:
        """The panel that keys act on: the focused one, or else the first."""
        return next((panel for panel in self.panels if panel.has_focus and panel.display), self.main)

    def update(self) -> None:
        """Draws what is new in the source: at once where it can be seen, or else within three seconds."""
        if self.source.names() != self.names:
            self.lay_out()
        for panel in self.panels:
            panel.has_news = True
        self._draw_due()

    def redraw(self) -> None:
        """Draws all charts anew."""
        for panel in self.panels:
            panel.is_stale = True
        self._draw_due()

    @on(Plot.Resized)
    def _draw_due(self) -> None:
        if self._waits:
            return
        until = time.monotonic() + DRAW_BUDGET_S
        shown = sum(panel.display for panel in self.panels)
        for panel in self.panels:
            panel.beside = shown
        due = [panel for panel in self.panels if panel.is_due]
        for index, panel in enumerate(due, start=1):
            panel.draw()
            if time.monotonic() > until and index < len(due):
                # In between, what is drawn is painted, and keys are served.
                self._waits = True
                self.call_after_refresh(self._draw_others)
                return

    def _draw_others(self) -> None:
        self._waits = False
        self._draw_due()

    def _in_common(self, panel: ChartPanel) -> dict[str, object]:
        return {name: getattr(panel.options, name) for name in self._shared}

    def _follow(self, changed: ChartPanel) -> None:
        common = self._in_common(changed)
        for panel in self.panels:
            panel.change(**common)
        self._draw_due()

    @property
    def cursor_step(self) -> int | None:
        """The step at the cursor; None without one, and on another axis."""
        panel = self.active
        is_there = panel.cursor is not None and panel.options.axis == "step"
        return round(panel.drawn.x_at(panel.cursor or 0)) if is_there else None

    def point_at(self, step: int | None) -> None:
        """Moves the cursor to a step, as far as the axis has it; None takes the cursor away."""
        panel = self.active
        if step is None or panel.options.axis != "step" or panel.drawn.is_empty:
            panel.cursor = None
        else:
            panel.cursor = panel.drawn.column_at(step)

    def close_cursor(self) -> bool:
        """Ends reading values; returns whether a chart had a cursor."""
        read = [panel for panel in self.panels if panel.cursor is not None]
        for panel in read:
            panel.cursor = None
        return bool(read)

    def why_idle(self, what: str) -> str:
        """Says why a key changes nothing now; "" if it does."""
        panel, options = self.active, self.active.options
        if what == "cursor" and not panel.drawn.curves:
            return "There is no curve to read values from."
        if what == "form" and len(panel.drawn.forms) < 2:
            return f"A heat map and a band are of {LEAST_MEMBERS} ranks or devices, and more."
        if what == "out" and options.window is None:
            return "All of it is in sight. + zooms in."
        if ("left" in what or "right" in what) and options.window is None and panel.cursor is None:
            return "All of it is in sight. + zooms in, v reads values."
        if what in ("smoother", "rougher"):
            if all(metric(chart.options.metric).held_out or chart.drawn.heat for chart in self.panels if chart.display):
                return "Evaluations and heat maps are not smoothed."
            ends = {"smoother": "It is as smooth as can be.", "rougher": "It is not smoothed."}
            return ends[what] if options.smoothing == SMOOTHINGS[-1 if what == "smoother" else 0] else ""
        return ""

    def do(self, what: str) -> None:
        """Does what a key asks for, of those in `KEYS`, or says why that changes nothing."""
        if why := self.why_idle(what):
            self.notify(why)
        panel = self.active
        options = panel.options
        match what:
            case "metric":
                self._list_metrics(panel)
            case "cursor":
                panel.toggle_cursor()
            case "in" | "out":
                panel.zoom(1 if what == "in" else -1)
            case "whole":
                panel.show_whole()
            case "left" | "right":
                panel.move(1 if what == "right" else -1)
            case "far_left" | "far_right":
                panel.move(FAR_CELLS if what == "far_right" else -FAR_CELLS)
            case "axis":
                axes = panel.source.axes()
                index = axes.index(options.axis) + 1 if options.axis in axes else 0
                panel.change(axis=axes[index % len(axes)], window=None)
            case "form":
                panel.next_form()
                if self._remembers:
                    forms = {**self.memory.view.forms, options.metric: panel.options.form}
                    self.memory.keep(forms=dict([*forms.items()][-MOST_NAMES:]))
            case "log":
                panel.change(log=not options.log)
            case "smoother" | "rougher":
                index = SMOOTHINGS.index(options.smoothing) + (1 if what == "smoother" else -1)
                panel.change(smoothing=SMOOTHINGS[min(len(SMOOTHINGS) - 1, max(0, index))])
        if self._remembers:
            options = self.main.options
            # Not every run has other axes.
            axis = {"axis": options.axis} if options.axis in ("step", "time") else {}
            self.memory.keep(smoothing=options.smoothing, log=options.log, **axis)

    def _list_metrics(self, panel: Panel) -> None:
        def post(name: str | None) -> None:
            if name:
                self.post_message(self.MetricChosen(self.panels.index(panel), name))

        names = panel.source.names() or [LOSS]
        self.app.push_screen(MetricList(names, panel.options.metric, title="Metric", pins=self._pins), post)


def chart_keys(screen: str, *in_footer: str, without: Collection[str] = ()) -> list[BindingType]:
    """Returns the bindings of `KEYS`, with ids of the `screen`, those in the footer first."""
    hidden = [what for what in KEYS if what not in (*in_footer, *without)]
    return [
        Binding(
            KEYS[what].key,
            KEYS[what].action or f"chart('{what}')",
            KEYS[what].words,
            tooltip=KEYS[what].tooltip,
            id=f"{screen}.{KEYS[what].id}",
            key_display=KEYS[what].display,
            show=what in in_footer,
        )
        for what in (*in_footer, *hidden)
    ]
