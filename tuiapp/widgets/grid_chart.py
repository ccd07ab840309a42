"""One of several charts on a page: a line with its metric and latest value, and the curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static

from tuiapp.trainers.state.known_metrics import metric
from tuiapp.view.chart import ChartOptions
from tuiapp.widgets.chart_panel import ChartPanel, ChartSource, scale_of


class GridChart(ChartPanel, inherit_bindings=False):
    """A chart that can be selected; large, it has a legend, and the mouse zooms it and reads values."""

    DEFAULT_CSS = """
    GridChart {
        #title { height: 1; padding: 0 1 0 0; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
        #legend { display: none; padding: 0 1; }
        Plot { padding: 0; background: $background; }
        &.-large #legend { display: block; }
        &.-selected #title, &:focus #title { background: $primary 40%; text-style: bold; }
    }
    """

    SAYS_SETTINGS: ClassVar[bool] = False

    large: var[bool] = var(False, init=False, toggle_class="-large")
    selected: var[bool] = var(False, init=False, toggle_class="-selected")
    pinned: var[bool] = var(False, init=False)

    @dataclass
    class Selected(Message):
        """The user clicked it."""

        chart: GridChart
        twice: bool

    def __init__(self, source: ChartSource, options: ChartOptions | None = None) -> None:
        super().__init__(source, options)
        self._title = Content()

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield from super().compose()

    def watch_drawn(self) -> None:
        self._show_title()

    def watch_selected(self) -> None:
        self._show_title()

    def watch_pinned(self) -> None:
        self._show_title()

    def _show_title(self) -> None:
        name = self.options.metric
        latest = Content(self.source.latest(name))
        if self.drawn.heat is not None:
            latest = Content("  ").join(
                [scale_of(self.drawn, self.drawn.heat, dark=self.app.current_theme.dark), latest]
            )
        room = max(1, self.size.width - 3 - latest.cell_length)
        label = f"{metric(name).label}{' · pinned' if self.pinned else ''}"
        title = Content(f"{'▸' if self.selected else ' '} {label}").truncate(room, ellipsis=True, pad=True)
        title = Content.assemble(title, " ", latest)
        if self.is_mounted and not title.is_same(self._title):
            self._title = title
            self.query_one("#title", Static).update(title, layout=False)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Selected(self, event.chain > 1))
