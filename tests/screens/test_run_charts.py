"""The charts' keys and mouse on the Run screen, and their settings, which are those of the last time."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.reported import step_event
from tests.kit.run_app import LARGE, SMALL, ListFeed, RunApp, settled, until
from tests.kit.shown import is_current
from tests.screens.test_compare_screen import CompareApp, make_runs
from tuiapp.library.chart_view import ChartView, change_view, read_view, view_path
from tuiapp.screens.chart_grid import ChartGrid, Layout
from tuiapp.screens.chart_sources import RunSource
from tuiapp.screens.metrics_grid import MetricsGrid
from tuiapp.screens.pickers import MetricList
from tuiapp.screens.run_reader import RunReader
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.contract.metrics import LOSS, RATE, STEP_TIME, TEST_ACCURACY
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.view.chart import LEFT_CELLS, ChartOptions
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.plot import Plot
from tuiapp.widgets.rank_table import RankTable


def chart(app: RunApp, name: str = "loss") -> ChartPanel:
    return app.run_screen.query_one(f"#{name}", ChartPanel)


def legend(one: ChartPanel) -> str:
    return str(one.query_one("#legend", Static).render())


async def drawn(pilot: Pilot[None], app: RunApp) -> ChartPanel:
    await settled(pilot, app)
    one = chart(app)
    await until(pilot, lambda: is_current(one) and one.drawings > 0)
    return one


def listed(app: RunApp) -> list[str]:
    """What the list of metrics holds."""
    return [str(option.prompt).strip() for option in app.screen.query_one(OptionList).options]


async def choose(pilot: Pilot[None], app: RunApp, key: str, *keys: str) -> None:
    """Open the list of metrics and choose one of them."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, MetricList))
    await pilot.press(*keys, "enter")
    await until(pilot, lambda: app.screen is app.run_screen)


async def test_a_metric_of_any_name_is_listed_drawn_and_read_out() -> None:
    values: dict[str, list[float | None]] = {"train/ppl": [12.5], "[b]reward\x1b[31m": [1.0]}
    odd = [Metrics(rank=0, first_step=step, values=values, **h.at(9)) for step in range(1, 131)]
    app = RunApp([*h.running(), *odd])
    async with app.run_test(size=LARGE) as pilot:
        one = await drawn(pilot, app)
        await choose(pilot, app, "m", "end")
        assert one.options.metric == "train/ppl"
        assert str(one.border_title) == "1 train/ppl"
        await pilot.press("v")
        assert "rank 0 12.50" in legend(one)
        await pilot.press("v")
        await choose(pilot, app, "m", *["up"] * 5)
        assert one.options.metric == "[b]reward\x1b[31m"
        assert str(one.border_title) == r"1 \[b]reward"


def rewarded() -> list[AnyEvent]:
    """A run that reports two metrics of its own."""
    values: dict[str, list[float | None]] = {"reward": [1.0, 2.0], "kl": [0.1, 0.2]}
    return [*h.running(), Metrics(rank=0, first_step=129, values=values, **h.at(9))]


def shown(app: RunApp) -> list[str]:
    """The metrics of the charts on the screen."""
    return [panel.options.metric for panel in app.run_screen.charts.panels if panel.region.area]


@pytest.mark.nightly
async def test_one_chart_or_several() -> None:
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await drawn(pilot, app)
        await until(pilot, lambda: len(shown(app)) == 2)
        await pilot.press("M")
        await until(pilot, lambda: shown(app) == ["loss"])
        await pilot.press("M")
        await until(pilot, lambda: len(shown(app)) == 2)
        await pilot.resize_terminal(*SMALL)
        await until(pilot, lambda: app.run_screen.single and len(shown(app)) == 2)
        assert not chart(app).region.overlaps(chart(app, "chart-2").region)


@pytest.mark.nightly
async def test_a_metric_that_is_pinned_has_a_chart_in_the_next_run_too() -> None:
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await drawn(pilot, app)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, MetricList))
        await pilot.press("down", "down", "f2")
        assert "step time  (step_time)  · pinned" in listed(app)
        await pilot.press("escape")
        await until(pilot, lambda: shown(app) == ["loss", STEP_TIME, TEST_ACCURACY])
        assert str(chart(app, "chart-2").border_title) == "step time · pinned"
        await pilot.press("G")
        await until(pilot, lambda: isinstance(app.screen, MetricsGrid))
        # The first one is the objective.
        await pilot.press("f2", "escape")
        await until(pilot, lambda: app.screen is app.run_screen)
        assert app.run_screen.charts.pinned == (STEP_TIME, TEST_ACCURACY)
    again = RunApp(rewarded())
    async with again.run_test(size=(200, 60)) as pilot:
        await drawn(pilot, again)
        await until(pilot, lambda: shown(again)[:3] == ["loss", STEP_TIME, TEST_ACCURACY])
        again.run_screen.charts.toggle_pin(STEP_TIME)
        await until(pilot, lambda: shown(again)[:3] == ["loss", TEST_ACCURACY, "kl"])


@pytest.mark.nightly
async def test_a_metric_chosen_for_another_chart_is_pinned_there() -> None:
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await drawn(pilot, app)
        chart(app, "chart-2").focus()
        await choose(pilot, app, "m", "home")
        # It is shown already.
        assert shown(app) == ["loss", TEST_ACCURACY]
        await choose(pilot, app, "m", "home", "down")
        await until(pilot, lambda: shown(app) == ["loss", RATE, TEST_ACCURACY])
        assert chart(app, "chart-2").has_focus
        await choose(pilot, app, "m", "down")
        await until(pilot, lambda: shown(app) == ["loss", STEP_TIME, TEST_ACCURACY])


@pytest.mark.nightly
async def test_zoom_and_pan() -> None:
    app = RunApp(h.completed())
    async with app.run_test(size=LARGE) as pilot:
        one = await drawn(pilot, app)
        await pilot.press("plus")
        assert one.drawn.x_range == (145.5, 290.0)
        assert "showing 50 %" in str(one.border_subtitle)
        await pilot.press("left")
        assert one.drawn.x_range == pytest.approx((116.6, 261.1))
        await pilot.press(*["left"] * 9)
        assert one.drawn.x_range == pytest.approx((1.0, 145.5))
        await pilot.press(*["right"] * 9)
        assert one.options.window == (144.5, None)
        await pilot.press("minus")
        assert one.options.window is None
        await pilot.press("plus", "plus", "0")
        assert one.drawn.x_range == (1.0, 290.0)
        assert chart(app, "chart-2").options.window is None


async def test_0_shows_the_whole_run_then_all_values_and_goes_back() -> None:
    app = RunApp([h.started(1), step_event(0, 1, [2.4 * 0.8**step for step in range(1000)], **h.at(1))])
    async with app.run_test(size=LARGE) as pilot:
        one = await drawn(pilot, app)
        top = one.drawn.y_range[1]
        assert top < 0.3
        assert str(one.border_subtitle).endswith(", above the chart · 0 shows all")
        await pilot.press("plus", "0")
        assert (one.options.window, one.drawn.y_range[1]) == (None, top)
        await pilot.press("0")
        assert one.drawn.y_range[1] > 1.4
        assert str(one.border_subtitle) == "all values · 0 leaves out the first"
        await pilot.press("0")
        assert one.drawn.y_range[1] == top


async def test_the_cursor_reads_values_and_stands_still_then_catches_up() -> None:
    app = RunApp(h.running(last_step=120))
    async with app.run_test(size=LARGE) as pilot:
        one = await drawn(pilot, app)
        await pilot.press("v")
        assert str(one.border_subtitle) == "paused · v: resume"
        assert legend(one).startswith("step 120")
        await pilot.press("left", "shift+left")
        column = one.cursor
        assert column is not None
        step = round(one.drawn.x_at(column))
        assert legend(one).startswith(f"step {step}")
        assert "rank 0" in legend(one)
        drawings, curves = one.drawings, one.drawn
        app.feed.events += [h.steps(rank, 121, 139, 9.0) for rank in range(2)]
        await until(pilot, lambda: app.run_screen.state.step == 139)
        await pilot.pause(0.5)
        assert (one.drawings, one.drawn) == (drawings, curves)
        await pilot.press("v")
        assert one.cursor is None
        assert one.drawings > drawings
        assert one.drawn.extent[1] == 139


async def test_the_mouse_reads_zooms_and_chooses_a_rank() -> None:
    app = RunApp(h.completed(4))
    async with app.run_test(size=LARGE) as pilot:
        one = await drawn(pilot, app)
        plot = one.query_one(Plot)
        await pilot.click(plot, offset=(LEFT_CELLS + 20, 2))
        assert one.cursor == 40
        await pilot.click(plot, offset=(LEFT_CELLS + 20, 2))
        assert one.cursor is None
        plot.post_message(Plot.Scrolled(40, 1))
        await until(
            pilot, lambda: one.options.window is not None and chart(app, "chart-2").options.window == one.options.window
        )
        table = app.run_screen.query_one(RankTable)
        await pilot.click(table.query_one("#rows"), offset=(3, 2))
        await until(pilot, lambda: app.run_screen._source.rank == 2)
        assert table.chosen == app.run_screen.query_one(LogView).rank == 2
        await pilot.click(table.query_one("#rows"), offset=(3, 2))
        await until(pilot, lambda: app.run_screen._source.rank is None)


async def test_only_what_changed_is_painted() -> None:
    app = RunApp(h.running(2, last_step=121))
    async with app.run_test(size=LARGE) as pilot:
        one = await drawn(pilot, app)
        plot = one.query_one(Plot)
        painted: list[int] = []
        refresh = plot.refresh

        def count(*regions: object, **options: object) -> Plot:
            painted.append(len(regions))
            return refresh(*regions, **options)  # type: ignore[arg-type]

        plot.refresh = count  # type: ignore[method-assign]
        app.run_screen.charts.redraw()
        assert painted == []
        drawings = one.drawings
        app.feed.events += [h.steps(rank, 122, 128, 9.0) for rank in range(2)]
        await until(pilot, lambda: one.drawings > drawings)
        assert painted
        assert all(0 < regions < 6 for regions in painted)


async def test_any_number_of_charts_of_any_sources_share_what_they_are_told_to() -> None:
    """The axis and the part in sight, but not the scale; keys act on the one that has the focus."""
    readers = [RunReader(RunDir(Path(h.RUN_ID)), ListFeed(events), lambda: h.START) for events in (h.completed(), [])]
    for reader in readers:
        reader.read(10)
    panels = [ChartPanel(RunSource(readers[place > 1]), ChartOptions(name)) for place, name in enumerate("abc")]

    layout = Layout(["loss", "b", "c"], 3)

    class Bare(App[None]):
        def compose(self) -> ComposeResult:
            yield ChartGrid(panels[0].source, panels.__getitem__, lambda names, size: layout)

    app = Bare()
    async with app.run_test(size=LARGE) as pilot:
        board = app.query_one(ChartGrid)
        board.update()
        panels[1].focus()
        await until(pilot, lambda: board.active is panels[1] and not any(panel.is_due for panel in panels))
        # As after a drawing that took long: the others wait for the next painting.
        board._waits = True
        board.do("log")
        board.do("axis")
        assert [panel.options.log for panel in panels] == [False, True, False]
        assert [panel.options.axis for panel in panels] == ["time"] * 3
        panels[0].zoom(1)
        assert panels[0].options.window == panels[1].options.window == panels[2].options.window is not None
        board._draw_others()
        await until(pilot, lambda: not any(panel.is_due for panel in panels))
        assert panels[0].drawn.x_range == pytest.approx((8.325, 16.5))
        assert panels[2].drawn.is_empty


async def test_h_shows_ranks_as_a_heat_map_whose_rows_enter_opens() -> None:
    app = RunApp(nodes.running(2, 32))
    async with app.run_test(size=SMALL) as pilot:
        one = await drawn(pilot, app)
        assert (one.drawn.form, "mean of 32 ranks" in legend(one)) == ("band", True)
        await pilot.press("H")
        await until(pilot, lambda: one.drawn.form == "heat")
        assert legend(one).startswith("loss  32 ranks  0.0000 .:-=+*#%@ 2.400 ")
        assert legend(one).endswith("3 ranks a row: mean or culprit")
        labels = [one.plot.render_line(line).text[:LEFT_CELLS] for line in range(one.plot.rows)]
        assert len(one.drawn.heat.rows if one.drawn.heat else ()) == sum(bool(text.strip(" │")) for text in labels)
        one.focus()
        await pilot.press("down", "enter")
        await until(pilot, lambda: one.options.among is not None)
        await until(pilot, lambda: is_current(one))
        assert "of 32" in str(one.border_subtitle)
        await pilot.press("v")
        assert " to " in legend(one)
        await pilot.press("v", "enter")
        await until(pilot, lambda: one.options.among is None and is_current(one))
        await pilot.press("H")
        await until(pilot, lambda: one.drawn.form == "band")


@pytest.mark.nightly
async def test_what_was_chosen_is_there_the_next_time(tmp_path: Path) -> None:
    first = RunApp(h.running())
    async with first.run_test(size=LARGE) as pilot:
        await settled(pilot, first)
        await pilot.press("y", "t", "right_square_bracket", "m", "down", "enter")
        await until(pilot, lambda: view_path().exists())
    kept = ChartView(metric=RATE, axis="time", smoothing=0.8, log=True)
    assert read_view() == (kept, "")
    assert stat.S_IMODE(view_path().stat().st_mode) == 0o600
    again = RunApp(h.running())
    async with again.run_test(size=LARGE) as pilot:
        await settled(pilot, again)
        one = chart(again)
        assert (one.options.metric, one.options.log) == (RATE, True)
        assert (one.options.axis, one.options.smoothing) == ("time", 0.8)
    ranks = RunApp(h.running(8))
    async with ranks.run_test(size=LARGE) as pilot:
        await settled(pilot, ranks)
        await pilot.press("H")
        await until(pilot, lambda: bool(read_view()[0].forms))
    ranks = RunApp(h.running(8))
    async with ranks.run_test(size=LARGE) as pilot:
        await settled(pilot, ranks)
        assert (chart(ranks).options.metric, chart(ranks).drawn.form) == (RATE, "band")
    compared = CompareApp(make_runs(tmp_path, 2))
    async with compared.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: not compared.compare_screen.chart.options.log)
        options = compared.compare_screen.chart.options
        # An accuracy, which they are best by, has a linear axis.
        assert (options.axis, options.smoothing, options.log) == ("time", 0.8, False)


async def test_a_change_right_before_the_end_is_kept_and_of_another_screen_too() -> None:
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        change_view({"axis": "time"})
        await pilot.press("y")
    assert read_view()[0] == ChartView(axis="time", log=True)


async def test_a_run_without_the_metric_shows_its_own() -> None:
    change_view({"metric": "eval/f1"})
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        assert chart(app).options.metric == LOSS
