"""All metrics of a run, or of several, as small charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit import own_metrics as own
from tests.kit.recorded import record
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tests.kit.shown import is_drawn
from tests.screens.test_compare_screen import CompareApp, read
from tests.screens.test_run_screen import text_of
from tuiapp.library.chart_view import change_view
from tuiapp.screens.metrics_grid import MetricsGrid
from tuiapp.trainers.contract.events import AnyEvent, encode
from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.run_header import RunHeader


def grid(app: App[Any]) -> MetricsGrid:
    assert isinstance(app.screen, MetricsGrid)
    return app.screen


async def opened(pilot: Pilot[Any], app: App[Any]) -> MetricsGrid:
    await pilot.press("G")
    await until(pilot, lambda: isinstance(app.screen, MetricsGrid))
    await drawn(pilot, app)
    return grid(app)


async def drawn(pilot: Pilot[Any], app: App[Any]) -> None:
    await until(pilot, lambda: is_drawn(grid(app)) and all(one.size for one in grid(app).visible_charts))
    await pilot.pause()
    await until(pilot, lambda: is_drawn(grid(app)))


def shown(app: App[Any]) -> list[str]:
    return [one.options.metric for one in grid(app).visible_charts]


def selected(app: App[Any]) -> str:
    return next(one.options.metric for one in grid(app).visible_charts if one.selected)


def heading(app: App[Any]) -> str:
    return str(app.screen.query_one("#heading", Static).render())


@pytest.mark.nightly
async def test_arrows_and_pages_reach_every_metric_and_escape_leads_back() -> None:
    app = RunApp(own.running(), now=62.0)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        await opened(pilot, app)
        assert selected(app) == "eval/f1"
        assert "page 1 of 3" in heading(app)
        assert shown(app) == ["eval/f1", "eval/bleu", "eval/loss", "train/loss"]
        assert "metrics 1  eval 3  grad 2  train 3" in heading(app)
        await pilot.press("right", "down")
        assert selected(app) == "train/loss"
        await pilot.press("right")
        await drawn(pilot, app)
        assert shown(app)[0] == selected(app) == "reward"
        await pilot.press("pageup", "pageup", "pagedown", "pagedown", "pagedown")
        await drawn(pilot, app)
        assert shown(app) == ["train/tokens"]
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.run_screen)
        await opened(pilot, app)
        assert selected(app) == "train/tokens"
        await pilot.press("home")
        await drawn(pilot, app)
        assert "page 1 of 3" in heading(app)


async def test_a_chart_is_large_zoomed_read_out_and_small_again() -> None:
    app = RunApp(own.running(2), now=62.0)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await opened(pilot, app)
        await pilot.press(*["right"] * 3, "v", "plus")
        assert all(one.options.window is None and one.cursor is None for one in grid(app).visible_charts)
        await pilot.press("enter")
        await drawn(pilot, app)
        assert shown(app) == ["train/loss"]
        assert "4 of 9" in heading(app)
        one = grid(app).visible_charts[0]
        assert one.size.height == 38
        legend = one.query_one("#legend", Static)
        assert str(legend.render()) == "rank  0 ━  1 ━  eval ◆"
        await pilot.press("plus")
        await drawn(pilot, app)
        assert "showing 50 %" in heading(app)
        await pilot.press("0", "v", "left")
        await drawn(pilot, app)
        assert str(legend.render()).startswith("step 11")
        await pilot.press("v", "pagedown")
        await drawn(pilot, app)
        assert shown(app) == ["reward"]
        await pilot.press("escape")
        await drawn(pilot, app)
        assert len(shown(app)) == 6
        assert selected(app) == "reward"


@pytest.mark.nightly
async def test_the_filter_narrows_and_escape_takes_it_back() -> None:
    app = RunApp(own.running(), now=62.0)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        await opened(pilot, app)
        await pilot.press("slash", *"loss")
        await drawn(pilot, app)
        assert shown(app) == ["eval/loss", "train/loss"]
        await pilot.press("enter", "right")
        assert selected(app) == "train/loss"
        assert app.screen.query_one("#filter", Input).display
        await pilot.press("slash", *" x")
        await pilot.pause()
        assert "No metric matches all these words" in text_of(app.screen)
        await pilot.press("escape")
        await drawn(pilot, app)
        assert len(shown(app)) == 4
        assert app.focused is None
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.run_screen)


@pytest.mark.nightly
async def test_it_is_live_and_the_screen_beneath_is_up_to_date_again_afterwards() -> None:
    app = RunApp([own.started()], now=62.0)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await opened(pilot, app)
        assert "waiting for the first metric…" in text_of(app.screen)
        app.feed.events = own.running(last_step=40)[1:]
        await until(pilot, lambda: len(shown(app)) == 6)
        await drawn(pilot, app)
        for one in grid(app).visible_charts:
            assert one.drawn.extent[1] == 40
        app.feed.events = [own.logged(60, [*own.TRAIN, "a/first"])]
        await until(pilot, lambda: shown(app)[3:] == ["train/loss", "reward", "a/first"])
        await drawn(pilot, app)
        assert grid(app).visible_charts[3].drawn.extent[1] == 60
        app.feed.events = [own.ended(step=60)]
        await until(pilot, lambda: "COMPLETED" in heading(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.run_screen)
        await until(pilot, lambda: "60 steps" in str(app.run_screen.query_one(RunHeader).render()))
        assert "COMPLETED" in str(app.run_screen.query_one(RunHeader).render())


@pytest.mark.nightly
async def test_compare_has_a_curve_per_run_in_each_chart(tmp_path: Path) -> None:
    runs = [record(tmp_path, f"20261120T10150{n}-script-x-000{n}", own.running(2)) for n in range(2)]
    runs.append(record(tmp_path, "20261120T101509-torch-ddp-net-0009", h.completed()))
    app = CompareApp(runs)
    async with app.run_test(size=(200, 60)) as pilot:
        await read(pilot, app)
        assert app.compare_screen.chart.options.metric == "test/accuracy", "what they are best by"
        await pilot.press("2")
        await opened(pilot, app)
        assert "Compare 3 runs" in heading(app)
        assert len(shown(app)) == 8
        assert "page" not in heading(app) or "page 1 of 2" in heading(app)
        assert "c ━" in str(grid(app).query_one("#legends", Static).render())
        assert [curve.label for curve in grid(app).visible_charts[shown(app).index("loss")].drawn.curves] == ["c"]
        await pilot.press("slash", *"ppl", "enter", "enter", "t", "t")
        await drawn(pilot, app)
        one = grid(app).visible_charts[0]
        # Its length is not known.
        assert "by epoch" in heading(app)
        assert one.drawn.is_empty
        await pilot.press("t", "t")
        await drawn(pilot, app)
        assert [curve.label for curve in one.drawn.curves] == ["a"]
        await pilot.press("v")
        await pilot.pause()
        assert "step 120  a ━ 9.780" in str(one.query_one("#legend", Static).render())
        await pilot.press("v", "escape", "escape")
        await drawn(pilot, app)
        more: list[AnyEvent] = [own.logged(200, ["train/ppl"])]
        with open(runs[0].journal, "ab") as journal:
            journal.writelines(encode(event) for event in more)
        await until(pilot, lambda: any(chart.drawn.extent[1] == 200 for chart in grid(app).visible_charts))


@pytest.mark.nightly
async def test_compares_grid_has_its_objective_first_and_a_star_at_the_best_run(tmp_path: Path) -> None:
    change_view({"objective": "test/accuracy", "rises": True})
    made = [interrupted.failed(), h.completed()]
    runs = [record(tmp_path, f"20261120T10150{n}-torch-ddp-net-000{n}", events) for n, events in enumerate(made)]
    best = Objective("test/accuracy", rises=True)
    values = [best.value(summarise(run)) or 0.0 for run in runs]
    app = CompareApp(runs)
    async with app.run_test(size=LARGE) as pilot:
        await read(pilot, app)
        await opened(pilot, app)
        assert shown(app)[0] == "test/accuracy"
        letter = "ab"[values.index(max(values))]
        title = grid(app).visible_charts[0].query_one("#title", Static)
        assert f"↑ ★ {letter} {100 * max(values):.2f} %" in str(title.render())
        legend = str(grid(app).query_one("#legends", Static).render())
        assert f"{letter} ━ ★" in legend
        assert legend.count("★") == 1


@pytest.mark.nightly
async def test_a_key_that_changes_nothing_says_why(tmp_path: Path) -> None:
    app = CompareApp([record(tmp_path, f"20261120T10150{n}-torch-ddp-net-000{n}", h.completed()) for n in range(2)])

    async def said(*keys: str) -> str:
        app.clear_notifications()
        await pilot.press(*keys)
        await pilot.pause()
        return "\n".join(note.message for note in app._notifications)

    async with app.run_test(size=(200, 60), notifications=True) as pilot:
        await read(pilot, app)
        assert "There are 2 curves" in await said("5")
        assert "All of it is in sight" in await said("minus")
        await opened(pilot, app)
        assert "on the Run screen" in await said("f2")
        assert "All charts are on this page." in await said("pagedown")
        for key in ("v", "plus", "minus"):
            assert "Enter makes the chart large" in await said(key)
        assert not await said("right_square_bracket")
        assert "as smooth as can be" in await said(*["right_square_bracket"] * 9)
        assert not await said("enter")
        assert "All of it is in sight" in await said("left")
        assert not await said("v", "left")


@pytest.mark.nightly
async def test_a_key_is_painted_while_a_drawing_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    app = RunApp(own.running(), now=62.0)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        screen = await opened(pilot, app)
        painted: list[bool] = []
        refresh = screen._compositor_refresh

        def note_and_refresh() -> None:
            painted.append(is_drawn(screen))
            refresh()

        monkeypatch.setattr(screen, "_compositor_refresh", note_and_refresh)
        # One chart, and the others after the next painting.
        monkeypatch.setattr("tuiapp.screens.chart_grid.DRAW_BUDGET_S", 0.0)
        for _ in range(5):
            screen.charts.redraw()
            screen._select(1)
            await until(pilot, lambda: not screen._dirty_widgets)
        assert False in painted
