"""Where a grid's charts come from: one run, with a curve per rank, or several, with a curve each."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from string import ascii_lowercase
from typing import Protocol

from textual.content import Content

from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.state.chart import Chart, View, build_chart
from tuiapp.state.comparison_chart import Look, build_comparison, place_words, read_out
from tuiapp.state.curves import AXES, Axis, Curves
from tuiapp.state.metrics import metric
from tuiapp.state.palette import series_color
from tuiapp.state.run_state import RunState
from tuiapp.state.text import MISSING, plural, sanitize
from tuiapp.widgets import chart_legend
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.run_header import SYMBOLS


class GridSource(Protocol):
    @property
    def axes(self) -> Sequence[Axis]: ...

    @property
    def step(self) -> int:
        """The last one; 0 if there are several."""

    def title(self) -> Content: ...

    def names(self) -> Sequence[str]:
        """All metrics, in order."""

    def build(self, look: Look, *, columns: int, rows: int) -> Chart:
        """As for `build_chart`."""

    def latest(self, name: str) -> str:
        """The metric's last value; "" if there are several."""

    def legend(self, chart: Chart, look: Look, cursor: int | None, *, dark: bool) -> Content:
        """Names the curves or, with a cursor, their values at that column of dots."""

    def why_empty(self, name: str) -> str: ...


class RunSource:
    """The curves of a run's ranks; a replay that goes back replaces what `state` returns."""

    axes: Sequence[Axis] = ("step", "time")

    def __init__(self, state: Callable[[], RunState], rank: int | None) -> None:
        self._state, self._rank = state, rank

    @property
    def step(self) -> int:
        return self._state().step

    def title(self) -> Content:
        state = self._state()
        symbol, style = SYMBOLS[state.status]
        return Content.assemble((f"{symbol} {state.status.upper()}", f"bold {style}"), (f" {state.phase}", MUTED))

    def names(self) -> Sequence[str]:
        state = self._state()
        return state.metrics if state.curves.names or state.utilization else []

    def build(self, look: Look, *, columns: int, rows: int) -> Chart:
        by_time, (span, end) = look.axis == "time", look.window or (None, None)
        view = View(look.metric, look.smoothing, look.log, self._rank, by_time, span, end)
        return build_chart(self._state(), view, columns=columns, rows=rows)

    def latest(self, name: str) -> str:
        curves = self._state().curves
        ranks = curves.ranks(name) if self._rank is None else [self._rank]
        values = [last for rank in ranks if (last := curves[rank, name].last) is not None]
        return metric(name).format(sum(values) / len(values)) if values else ""

    def legend(self, chart: Chart, look: Look, cursor: int | None, *, dark: bool) -> Content:
        how = chart_legend.Look(dark=dark, metric=look.metric)
        return chart_legend.names(chart, how) if cursor is None else chart_legend.reading(chart, cursor, how)

    def why_empty(self, name: str) -> str:
        return chart_legend.why_empty(name, live=self._state().is_live)


class ComparisonSource:
    """The curves of several runs, but for those in `hidden`."""

    axes: Sequence[Axis] = AXES
    step = 0

    def __init__(self, feed: CompareFeed, hidden: Container[int]) -> None:
        self._feed, self._hidden = feed, hidden

    @property
    def _shown(self) -> list[tuple[str, int, Curves]]:
        runs = enumerate(self._feed.runs)
        return [(ascii_lowercase[place], place, run.curves) for place, run in runs if place not in self._hidden]

    def title(self) -> Content:
        return Content.styled(f"Compare {plural(len(self._feed.runs), 'run')}", "bold $text-primary")

    def names(self) -> Sequence[str]:
        with self._feed.lock:
            return list({name: None for *_, curves in self._shown for name in curves.names})

    def build(self, look: Look, *, columns: int, rows: int) -> Chart:
        with self._feed.lock:
            return build_comparison(self._shown, look, columns=columns, rows=rows)

    def latest(self, name: str) -> str:
        return ""

    def legend(self, chart: Chart, look: Look, cursor: int | None, *, dark: bool) -> Content:
        values = read_out(chart, cursor, look.metric) if cursor is not None else {}
        parts = [] if cursor is None else [Content.styled(place_words(chart.x_at(cursor), look.axis), "bold")]
        for letter, place, _ in self._shown:
            said = sanitize(self._feed.runs[place].info.directory.run_id)
            said = said if cursor is None else values.get(place, MISSING)
            parts.append(Content.assemble((f"{letter} ━ ", series_color(place, dark=dark)), said))
        return Content("  ").join(parts)

    def why_empty(self, name: str) -> str:
        return "none of these runs has data for this metric"
