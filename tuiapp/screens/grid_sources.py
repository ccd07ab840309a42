"""Where a grid's charts come from: one run, with a curve per rank, or several, with a curve each."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import TypeAlias

from textual.content import Content

from trainers.state.curves import AXES, Axis, Curves
from trainers.state.known_metrics import metric
from trainers.state.run_state import RunState
from trainers.state.text import MISSING, plural
from tuiapp.feeds.compare_feed import CompareFeed
from tuiapp.view.chart import Chart, Look, build_chart
from tuiapp.view.comparison_chart import build_comparison, place_words, read_out
from tuiapp.view.palette import series_color
from tuiapp.view.run_list import brief
from tuiapp.widgets.chart_legend import legend, why_empty
from tuiapp.widgets.run_header import state_words


class RunSource:
    """The curves of a run's ranks; a replay that goes back replaces what `state` returns."""

    axes: Sequence[Axis] = ("step", "time")

    def __init__(self, state: Callable[[], RunState], now: Callable[[], float], rank: int | None) -> None:
        self._state, self._now, self._rank = state, now, rank

    @property
    def step(self) -> int:
        """The last one."""
        return self._state().step

    def title(self) -> Content:
        return state_words(self._state(), self._now())[0]

    def names(self) -> Sequence[str]:
        """Returns all metrics."""
        state = self._state()
        return state.metrics if state.curves.names or state.utilization else []

    def build(self, look: Look, *, columns: int, rows: int) -> Chart:
        """As `build_chart`."""
        return build_chart(self._state(), replace(look, rank=self._rank), columns=columns, rows=rows)

    def latest(self, name: str) -> str:
        """Returns the metric's last value, the mean over the ranks."""
        curves = self._state().curves
        ranks = curves.ranks(name) if self._rank is None else [self._rank]
        values = [last for rank in ranks if (last := curves[rank, name].last) is not None]
        return metric(name).format(sum(values) / len(values)) if values else ""

    def legend(self, chart: Chart, look: Look, cursor: int | None, *, dark: bool) -> Content:
        """Names the curves or, with a cursor, their values at that column of dots."""
        return legend(chart, look.metric, cursor, dark=dark)

    def why_empty(self, name: str) -> str:
        return why_empty(name, live=self._state().is_live)


class ComparisonSource:
    """The curves of several runs, but for those in `hidden`: they have no common last step or value."""

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
            said = brief(self._feed.runs[place].info)
            said = said if cursor is None else values.get(place, MISSING)
            parts.append(Content.assemble((f"{letter} ━ ", series_color(place, dark=dark)), said))
        return Content("  ").join(parts)

    def why_empty(self, name: str) -> str:
        return "none of these runs has data for this metric"


GridSource: TypeAlias = RunSource | ComparisonSource
