"""Charts side by side: drawn in turn, and moved by the same keys on every screen."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import cached_property, partial

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.series import SMOOTHINGS
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.plot import Plot

MOST_SHARE = 0.03
"""Of a core, for drawing the charts: with hundreds of ranks they are drawn less often."""

TICK_S = 1.0
"""Interval at which charts are drawn that had news but were not due yet."""

DRAW_BUDGET_S = 0.01
"""Longest time for drawing before keys are served and the screen is painted, but for the last chart begun."""

FAR_CELLS = 10
"""Cells that shift moves the cursor by."""


class ChartBoard(Container):
    """Holds panels, at any depth."""

    def __init__(
        self, *children: Widget, shared: Collection[str] = ("axis", "smoothing", "window"), id: str | None = None
    ) -> None:
        """`shared` are the options that all panels have in common."""
        super().__init__(*children, id=id)
        self._shared = shared
        self._waits = False
        """Some are drawn after the next painting."""

    def on_mount(self) -> None:
        for panel in self.panels:
            self._observe(panel)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.redraw())
        self.set_interval(TICK_S, self._draw_due)

    def _observe(self, panel: ChartPanel) -> None:
        self.watch(panel, "options", partial(self._follow, panel), init=False)
        self.watch(panel, "cursor", self._draw_due, init=False)

    def add(self, panel: ChartPanel) -> None:
        """Adds a panel as the last one; what all have in common it has, too."""
        panel.change(**{name: getattr(self.main.options, name) for name in self._shared})
        self._observe(panel)
        self.panels.append(panel)
        self.mount(panel)

    @cached_property
    def panels(self) -> list[ChartPanel]:
        # Kept: a query takes a millisecond.
        return list(self.query(ChartPanel))

    @property
    def main(self) -> ChartPanel:
        return self.panels[0]

    @property
    def active(self) -> ChartPanel:
        """The panel that keys act on: the focused one, or else the first."""
        return next((panel for panel in self.panels if panel.has_focus and panel.display), self.main)

    def update(self) -> None:
        """Draws what is new in the sources: at once where it can be seen, or else within two seconds."""
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
            panel.most_share = MOST_SHARE / max(1, shown)
        due = [panel for panel in self.panels if panel.is_due]
        for place, panel in enumerate(due, start=1):
            panel.draw()
            if time.monotonic() > until and place < len(due):
                # In between, what is drawn is painted, and keys are served.
                self._waits = True
                self.call_after_refresh(self._draw_others)
                return

    def _draw_others(self) -> None:
        self._waits = False
        self._draw_due()

    def _follow(self, changed: ChartPanel) -> None:
        common = {name: getattr(changed.options, name) for name in self._shared}
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
        """Moves the cursor to a step, as far as the axis has it; None: there is none."""
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
        if what == "out" and options.window is None:
            return "All of it is in sight. + zooms in."
        if ("left" in what or "right" in what) and options.window is None and panel.cursor is None:
            return "All of it is in sight. + zooms in, v reads values."
        if what in ("smoother", "rougher"):
            if all(metric(one.options.metric).held_out for one in self.panels if one.display):
                return "Values of evaluations are not smoothed."
            ends = {"smoother": "It is as smooth as can be.", "rougher": "It is not smoothed."}
            return ends[what] if options.smoothing == SMOOTHINGS[-1 if what == "smoother" else 0] else ""
        return ""

    def do(self, what: str) -> None:
        """Does what a key asks for, or says why that changes nothing."""
        if why := self.why_idle(what):
            self.notify(why)
        panel = self.active
        options = panel.options
        match what:
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
                place = axes.index(options.axis) + 1 if options.axis in axes else 0
                panel.change(axis=axes[place % len(axes)], window=None)
            case "log":
                panel.change(log=not options.log)
            case "smoother" | "rougher":
                place = SMOOTHINGS.index(options.smoothing) + (1 if what == "smoother" else -1)
                panel.change(smoothing=SMOOTHINGS[min(len(SMOOTHINGS) - 1, max(0, place))])


def view_keys(screen: str, *, show: bool) -> list[BindingType]:
    """Returns bindings of the action `chart`; `screen` prefixes their ids, `show` puts the main ones in the footer."""
    return [
        Binding("v", "chart('cursor')", "Values", tooltip="Read values", id=f"{screen}.read-values", show=show),
        Binding(
            "plus,equals_sign",
            "chart('in')",
            "Zoom",
            tooltip="Zoom in",
            id=f"{screen}.zoom-in",
            key_display="+",
            show=show,
        ),
        Binding("minus", "chart('out')", "Zoom out", id=f"{screen}.zoom-out", key_display="-", show=False),
        Binding("0", "chart('whole')", "Whole run, all values", id=f"{screen}.whole-run", show=False),
        Binding("left", "chart('left')", "Earlier", id=f"{screen}.earlier", show=False),
        Binding("right", "chart('right')", "Later", id=f"{screen}.later", show=False),
        Binding("shift+left", "chart('far_left')", "Much earlier", id=f"{screen}.much-earlier", show=False),
        Binding("shift+right", "chart('far_right')", "Much later", id=f"{screen}.much-later", show=False),
    ]
