"""Where charts' curves come from: one run, with a curve per rank, or several, with a curve each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from textual.content import Content

from tuiapp.trainers.state.curves import ALL, Axis
from tuiapp.trainers.state.known_metrics import UTILIZATION, metric
from tuiapp.trainers.state.text import plural
from tuiapp.view.chart import BAND, Chart, ChartOptions, axis_of, build_chart, build_comparison
from tuiapp.view.groups import range_words
from tuiapp.view.marks import letter_of, series_color
from tuiapp.view.run_list import brief
from tuiapp.widgets.chart_panel import legend, why_empty
from tuiapp.widgets.colors import BAND_COLOR
from tuiapp.widgets.run_header import state_words

if TYPE_CHECKING:
    from tuiapp.feeds.compare_feed import Compared, CompareFeed
    from tuiapp.screens.run_reader import RunReader
    from tuiapp.trainers.state.objective import Objective
    from tuiapp.trainers.state.series import Series


LEAST_NAME = 6
"""Cells of a run's name in a legend: with less room there are the letters alone."""


class RunSource:
    """The curves of a run's ranks. A replay that goes back replaces the reader's state."""

    names_curves = False

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self.rank: int | None = None
        """The rank whose curve is shown; None for all."""

    @property
    def step(self) -> int:
        """The run's last step."""
        return self._reader.state.step

    @property
    def version(self) -> object:
        """A value that differs after an evaluation, at the run's end, and in another state."""
        state = self._reader.state
        return state.curves, state.curves.evaluated, state.is_live

    def title(self) -> Content:
        """Returns the state of the run."""
        return state_words(self._reader.state, self._reader.now)[0]

    def names(self) -> Sequence[str]:
        """Returns all metrics."""
        state = self._reader.state
        return [*state.curves.names, *([UTILIZATION] if state.utilization else [])]

    def axes(self) -> Sequence[Axis]:
        """Returns what the run's curves can be drawn by."""
        return self._reader.state.curves.axes()

    def build(self, options: ChartOptions, *, columns: int, rows: int) -> Chart:
        """Draws a curve per rank, or a heat map, or their mean and a band, as `build_chart` does."""
        return build_chart(self._reader.state, options, columns=columns, rows=rows, rank=self.rank)

    def latest(self, name: str) -> str:
        """Returns the metric's last value, the mean over the ranks."""
        curves = self._reader.state.curves
        ranks = curves.ranks(name) if self.rank is None else [self.rank]
        values = [last for rank in ranks if (last := curves.last(rank, name)) is not None]
        return metric(name).format(sum(values) / len(values)) if values else ""

    def constant(self, name: str) -> float | None:
        """Returns the value that the metric had whenever it was reported, more than once; None if it varies."""
        return _constant([self._reader.state.curves.first(name)])

    def legend(self, chart: Chart, options: ChartOptions, cursor: int | None, *, dark: bool, width: int) -> Content:
        """Names the ranks or, with a cursor, their values there."""
        return legend(chart, options.metric, cursor, dark=dark, width=width)

    def why_empty(self, options: ChartOptions) -> str:
        """Says what is awaited, or why there is nothing."""
        if options.window is not None:
            return "no data in this range: 0 shows the whole run"
        state = self._reader.state
        return why_empty(options.metric, live=state.is_live, script=state.is_script and not state.curves.names)


class Best(NamedTuple):
    """The best of several runs."""

    objective: Objective
    place: int
    value: str


class ComparisonSource:
    """The curves of several runs, which have no last step or value in common."""

    step = 0
    names_curves = True

    def __init__(self, feed: CompareFeed) -> None:
        self.feed = feed
        self.hidden: set[int] = set()
        """Places of the runs whose curves are not shown."""
        self.groups: Mapping[int, str] = {}
        """Names of the groups whose runs share a place, by place."""
        self.unlike: Sequence[int] = ()
        """Places of groups whose runs differ in more than their seed: they have a line each."""
        self.is_patient = True
        """Whether an empty chart is not explained yet while runs are read."""
        self.best: Best | None = None
        """The best run or group, and by what; None where a list says it."""

    @property
    def version(self) -> object:
        """The feed's version, which differs whenever something was read."""
        return self.feed.version

    @property
    def is_reading(self) -> bool:
        """Whether some run is not read to its end."""
        return any(run.progress is not None for run in self.feed.runs)

    @property
    def _shown(self) -> list[Compared]:
        return [run for run in self.feed.runs if run.place not in self.hidden]

    def title(self) -> Content:
        """Returns how many runs there are."""
        return Content.styled(f"Compare {plural(len(self.feed.runs), 'run')}", "bold $text-primary")

    def axes(self) -> Sequence[Axis]:
        """Returns the axes of the runs that are shown."""
        with self.feed.lock:
            return list({axis: None for run in self._shown for axis in run.curves.axes()}) or ["step"]

    def names(self) -> Sequence[str]:
        """Returns the metrics of the runs that are shown."""
        with self.feed.lock:
            return list({name: None for run in self._shown for name in run.curves.names})

    def build(self, options: ChartOptions, *, columns: int, rows: int) -> Chart:
        """Draws a curve per run, as `build_comparison` does."""
        with self.feed.lock:
            runs = [(letter_of(run.place), run.place, run.curves) for run in self._shown]
            live = any(run.info.is_live for run in self._shown)
            options = replace(options, axis=axis_of([(run.facts, run.curves) for run in self._shown], options))
            return build_comparison(runs, options, columns=columns, rows=rows, live=live, unlike=self.unlike)

    def constant(self, name: str) -> float | None:
        """Returns the value that the metric had in all these runs; None if it varies."""
        with self.feed.lock:
            return _constant([series for run in self._shown if len(series := run.curves[ALL, name])])

    def latest(self, name: str) -> str:
        """Returns the best run's value of what it is best by; of other metrics nothing: each run has its own."""
        if self.best is None or self.best.objective.name != name:
            return ""
        return f"{'↑' if self.best.objective.rises else '↓'} ★ {letter_of(self.best.place)} {self.best.value}"

    def values(self, chart: Chart, column: int, name: str) -> list[str]:
        """Formats the value of each run or group at a dot column, or the least and the greatest of its lines."""
        values: dict[int, list[float]] = {}
        for _, color, value in chart.read(column):
            if value is not None:
                values.setdefault(color, []).append(value)
        return [range_words(values.get(place, ()), metric(name).format) for place in self._names()]

    def _names(self) -> dict[int, str]:
        """Returns the name of each run, or of its group, by place."""
        return {run.place: self.groups.get(run.place) or brief(run.info) for run in self.feed.runs}

    def legend(self, chart: Chart, options: ChartOptions, cursor: int | None, *, dark: bool, width: int) -> Content:
        """Names the runs or, with a cursor, their values there; more than have a letter by their number."""
        position = [] if cursor is None else [Content.styled(chart.place_words(chart.x_at(cursor)), "bold")]
        if chart.band is not None:
            return Content("  ").join([*position, *_band_legend(chart, options, cursor, dark=dark)])
        names = self._names()
        stars = ["★ " if self.best and self.best.place == place else "" for place in names]
        parts = [
            f"{letter_of(place)} ━ {star}" if len(names) > 1 else "━ " for place, star in zip(names, stars, strict=True)
        ]
        if cursor is None:
            room = (width + 2) // max(1, len(names)) - 2 - len(max(parts, key=len, default=""))
            texts = _shortened([*names.values()], room)
            if not any(texts):
                shown_places = [place for place in names if place not in self.hidden]
                letters = [Content.styled(letter_of(place), series_color(place, dark=dark)) for place in shown_places]
                return Content(" ").join(letters)
        else:
            texts = self.values(chart, cursor, options.metric)
        shown = [
            Content.assemble((part, BAND_COLOR if place == BAND else series_color(place, dark=dark)), text)
            for place, part, text in zip(names, parts, texts, strict=True)
            if place not in self.hidden
        ]
        return Content("  ").join([*position, *shown])

    def why_empty(self, options: ChartOptions) -> str:
        """Says why there is nothing; while runs are read nothing at first, since small journals are read at once."""
        if self.is_reading:
            return "" if self.is_patient else "reading …"
        label = metric(options.metric).label
        if self.hidden and not self._shown:
            return "all curves are hidden: the keys 1, 2, … show them"
        if options.log and options.metric in self.names():
            return f"no {label} above 0 for a logarithmic axis: y makes it linear"
        if options.window is not None:
            return "no data in this range: 0 shows the whole runs"
        if options.axis not in ("step", "time"):
            return f"none of these runs has reported {label} by {options.axis}: t chooses another axis"
        further = ": m chooses another metric" if self.names() else " yet"
        return f"none of these runs has reported {label}{further}"


def _constant(series: Sequence[Series]) -> float | None:
    """Returns the one value of all of these; None if there are several, or none that was reported twice."""
    bounds = [curve.bounds for curve in series]
    varied = None in bounds or not all(curve.is_finite for curve in series)
    if varied or not any(curve.last_step > curve.first_step for curve in series):
        return None
    values = {value for pair in bounds if pair for value in pair}
    return values.pop() if len(values) == 1 else None


def _shortened(texts: list[str], room: int) -> list[str]:
    """Returns names or ids, the ends of those that need more cells than there are: ids differ at the end."""
    if all(len(text) <= room for text in texts):
        return texts
    return [text if len(text) <= room else f"…{text[1 - room :]}" if room >= LEAST_NAME else "" for text in texts]


def _band_legend(chart: Chart, options: ChartOptions, cursor: int | None, *, dark: bool) -> list[Content]:
    """Says what a band is or, with a cursor, the mean and the least and greatest value there."""
    format_value, band, mean = metric(options.metric).format, chart.band, chart.curves[0]
    assert band is not None
    if cursor is None:
        whose, bounds = f"mean of {plural(chart.ranks, 'run')}", "least to greatest"
    else:

        def figure(y: float) -> str:
            return format_value(None if y != y else 10**y if chart.log else y)

        whose = f"mean {figure(mean.middle[cursor])}"
        bounds = f"{figure(band.low[cursor])} to {figure(band.high[cursor])}"
    return [
        Content.assemble(("━ ", series_color(mean.color, dark=dark)), whose),
        Content.assemble(("▒ ", BAND_COLOR), bounds),
    ]
