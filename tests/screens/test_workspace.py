"""The charts of the Runs screen: whose curves, where, and in which colours."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.widgets import Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record
from tests.kit.run_app import until
from tests.kit.runs_app import ListLister, RunsApp
from tests.kit.shown import is_current
from tuiapp.feeds.compare_feed import Compared
from tuiapp.library.chart_view import read_view
from tuiapp.screens.pickers import MetricList
from tuiapp.screens.workspace import RunsCharts, Workspace
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import Change, change_about
from tuiapp.trainers.state.summary import summarise
from tuiapp.view.marks import series_color
from tuiapp.widgets.chart_panel import GridChart
from tuiapp.widgets.run_table import RunTable


class WorkspaceApp(RunsApp):
    """The Runs screen over runs on a disk, the newest first."""

    def __init__(self, runs: list[RunDir]) -> None:
        super().__init__(ListLister([summarise(run) for run in reversed(runs)]))

    @property
    def workspace(self) -> Workspace:
        return self.runs_screen.query_one(Workspace)

    @property
    def charts(self) -> RunsCharts:
        return self.runs_screen.query_one(RunsCharts)

    @property
    def compared(self) -> dict[str, Compared]:
        """What is read, by letter."""
        return {"abcdefghijklmnopqrstuvwxyz▒"[run.place]: run for run in self.charts._feed.runs}

    @property
    def legend(self) -> str:
        return str(self.charts.query_one("#legends", Static).content)

    def is_drawn(self, curves: int) -> bool:
        """All charts are drawn, and the first one has so many curves."""
        if not self.runs_screen.query(RunsCharts) or any(run.progress is not None for run in self.charts._feed.runs):
            return False
        current = self.charts._seen == self.charts._feed.version and all(map(is_current, self.charts.grid.panels))
        return current and len(self.charts.grid.main.drawn.curves) == curves

    def color_of(self, row: int) -> str:
        """The colour of a row's letter."""
        ((_, style, _), *_) = self.runs_screen.query_one(RunTable).render_line(row + 1)
        assert style is not None
        assert style.color is not None
        return style.color.name.upper()


def make_runs(root: Path, count: int) -> list[RunDir]:
    return [
        record(
            root,
            f"20261120T1015{n:02}-torch-ddp-net-{n:04x}",
            h.completed() if n % 2 else interrupted.failed(),
            msgspec.structs.replace(CONFIG, learning_rate=10.0**-n),
        )
        for n in range(count)
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("size", "count", "place"),
    [
        ((80, 24), 3, "-below"),
        ((80, 24), 8, "-alone"),
        ((120, 40), 3, "-below"),
        ((200, 30), 12, "-beside"),
        ((200, 60), 12, "-below"),
    ],
)
async def test_the_charts_are_where_there_is_room(
    tmp_path: Path, size: tuple[int, int], count: int, place: str
) -> None:
    app = WorkspaceApp(make_runs(tmp_path, count))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.workspace.has_class(place))
        if place == "-alone":
            # Nothing is read that is not shown.
            assert not app.runs_screen.query(RunsCharts)
            await pilot.press("C")
        await until(pilot, lambda: app.is_drawn(1))
        names = [chart.options.metric for chart in app.charts.query(GridChart) if chart.display]
        assert names[:2] == ["test/accuracy", "loss"]
        table = app.runs_screen.query_one(RunTable)
        assert bool(table.region.area) != (place == "-alone")
        await pilot.press("C")
        await until(pilot, lambda: not app.charts.display and table.has_focus)
        assert table.size.height > 10
        await pilot.press("C")
        await until(pilot, lambda: app.is_drawn(1) and app.charts.display)


async def test_the_runs_of_the_group_at_the_cursor_are_overlaid(tmp_path: Path) -> None:
    runs = [
        record(
            tmp_path,
            f"20261120T1015{n:02}-torch-ddp-net-{n:04x}",
            h.completed(),
            msgspec.structs.replace(CONFIG, learning_rate=1 / (1 + n)),
        )
        for n in range(31)
    ]
    for n, run in enumerate(runs):
        change_about(run, Change(group="sweep" if n < 28 else "pair" if n < 30 else ""))
    app = WorkspaceApp(runs)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.rows) == 3)
        # All are as good: the newest is on top, a run alone.
        await until(pilot, lambda: app.is_drawn(1))
        assert {row[0] for row in app.rows} == {" "}
        await pilot.press("down")
        await until(pilot, lambda: app.is_drawn(2))
        # Open, its rows have the letters of the curves, wherever among them the cursor is.
        await pilot.press("enter", "down")
        await until(pilot, lambda: [row[0] for row in app.rows] == [" ", " ", "a", "b", " "])
        assert app.is_drawn(2)
        # Of unlike runs there are as many lines as letters; what is under the cursor has one.
        await pilot.press("end", "enter")
        await until(pilot, lambda: app.is_drawn(26))
        assert app.charts.grid.main.drawn.band is None
        assert "and 2 runs more" in app.legend
        await pilot.press("end")
        await until(pilot, lambda: app.rows[-1][0] == "z" and app.is_drawn(26))
        # What is marked is meant instead.
        await pilot.press("x", "home", "x")
        await until(pilot, lambda: app.is_drawn(2))
        assert app.legend.startswith(f"a ━ {runs[0].run_id}  b ━ {runs[30].run_id}")


@pytest.mark.nightly
async def test_a_run_keeps_its_colour_and_is_read_once(tmp_path: Path) -> None:
    app = WorkspaceApp(make_runs(tmp_path, 4))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.is_drawn(1))
        await pilot.press("x", "down", "x", "down", "x", "end")
        await until(pilot, lambda: app.is_drawn(3))
        before = app.compared
        blue, orange, green = (series_color(place, dark=True).upper() for place in range(3))
        assert [app.color_of(row) for row in range(3)] == [blue, orange, green]
        await pilot.press("home", "x", "end")
        await until(pilot, lambda: app.is_drawn(2))
        assert [row[:1] for row in app.rows] == [" ", "b", "c", " "]
        assert [app.color_of(row) for row in (1, 2)] == [orange, green]
        assert {curve.color for curve in app.charts.grid.main.drawn.curves} == {1, 2}
        # Another one takes the free place; the others are the very same, with their curves.
        await pilot.press("x", "home")
        await until(pilot, lambda: app.is_drawn(3))
        assert [row[:1] for row in app.rows] == [" ", "b", "c", "a"]
        assert app.color_of(3) == blue
        assert all(app.compared[letter] is before[letter] for letter in "bc")
        assert app.compared["a"] is not before["a"]


@pytest.mark.nightly
async def test_more_unlike_runs_than_letters_are_lines(tmp_path: Path) -> None:
    app = WorkspaceApp(make_runs(tmp_path, 27))
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, lambda: app.is_drawn(1))
        await pilot.press(*["x", "down"] * 27)
        await until(pilot, lambda: app.is_drawn(27))
        chart = app.charts.grid.main.drawn
        assert (chart.bands, {curve.label for curve in chart.curves}) == ([], {""})
        assert app.legend.startswith("━ 27 runs, a line each")


@pytest.mark.nightly
async def test_the_charts_have_keys_of_their_own(tmp_path: Path) -> None:
    app = WorkspaceApp(make_runs(tmp_path, 2))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.is_drawn(1))
        await pilot.press("x", "down", "x", "tab", "tab")
        await until(pilot, lambda: app.is_drawn(2))
        second = app.charts.grid.panels[1]
        assert second.has_focus
        await pilot.press("y", "t")
        assert "logarithmic · by time" in app.legend
        await pilot.press("v")
        assert "paused" in app.legend
        await pilot.press("escape")
        assert second.has_focus
        assert second.cursor is None
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, MetricList))
        await pilot.press("end", "enter")
        await until(pilot, lambda: app.screen is app.runs_screen)
        assert (chosen := second.options.metric) not in ("loss", "test/accuracy")
        await pilot.press("escape")
        assert app.runs_screen.query_one(RunTable).has_focus
    assert read_view()[0].beside[0] == chosen


@pytest.mark.nightly
async def test_a_closed_group_of_seeds_is_its_mean_and_a_band(tmp_path: Path) -> None:
    runs = [
        record(
            tmp_path,
            f"20261120T1015{n:02}-torch-ddp-net-{n:04x}",
            h.completed(),
            msgspec.structs.replace(CONFIG, learning_rate=10.0 ** -(n // 3), seed=n),
        )
        for n in range(5)
    ]
    app = WorkspaceApp(runs)
    async with app.run_test(size=(120, 50)) as pilot:
        await until(pilot, lambda: len(app.rows) == 2)
        # Under the cursor, not marked.
        await until(pilot, lambda: app.is_drawn(1))
        assert [run.place for run in app.charts._feed.runs] == [0, 0]
        assert "20261120T101504-torch-ddp-net-0004 · 2 runs" in app.legend
        await pilot.press("x", "down", "x")
        await until(pilot, lambda: app.is_drawn(2))
        drawn = app.charts.grid.main.drawn
        assert [(band.label, band.color) for band in drawn.bands] == [("a", 0), ("b", 1)]
        assert sorted(run.place for run in app.charts._feed.runs) == [0, 0, 1, 1, 1]
        # Open, each has a letter of its own; the other group stays as it was.
        await pilot.press("enter")
        await until(pilot, lambda: app.is_drawn(4))
        assert [band.label for band in app.charts.grid.main.drawn.bands] == ["a"]
        assert sorted(run.place for run in app.charts._feed.runs) == [0, 0, 1, 2, 3]
        await pilot.press("enter")
        await until(pilot, lambda: app.is_drawn(2))
