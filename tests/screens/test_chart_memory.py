"""The settings of charts are those of the last time, on the Run screen and on Compare."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit.run_app import LARGE, RunApp, settled, until
from tests.screens.test_compare_screen import CompareApp, make_runs
from tuiapp.library.chart_view import ChartView, change_view, read_view, view_path
from tuiapp.trainers.contract.metrics import LOSS, RATE
from tuiapp.widgets.chart_panel import ChartPanel


def chart(app: RunApp) -> ChartPanel:
    return app.run_screen.query_one("#loss", ChartPanel)


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
    async with compared.run_test(size=LARGE):
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
