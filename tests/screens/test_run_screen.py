"""The Run screen with an injected feed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from textual.widget import Widget

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.reported import evaluation_event
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tests.kit.shown import is_current
from tuiapp.screens.run_panels import PANELS
from tuiapp.trainers.contract.events import WORST_EXAMPLES, Replicas
from tuiapp.trainers.contract.media import MediaFolder, encode_png
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.media_panel import Pictures
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.run_header import AlertStrip, RunHeader
from tuiapp.widgets.sharding_map import ShardingMap
from tuiapp.widgets.text_view import TextView


def visible(app: RunApp) -> list[str]:
    panels = [app.run_screen.query_one(f"#{name}", Widget) for name in PANELS]
    return [panel.id or "" for panel in panels if panel.region.area > 0]


def text_of(widget: Widget) -> str:
    return "\n".join(str(part.render()) for part in (widget.query("Static, TextView") or [widget]))


async def test_from_empty_to_the_end() -> None:
    app = RunApp()
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: app.feed.calls == ["start"])
        await settled(pilot, app)
        header = app.run_screen.query_one(RunHeader)
        assert "waiting for the first event" in str(header.render())
        app.feed.events = h.running()
        await settled(pilot, app)
        assert "RUNNING training" in str(header.render())
        assert app.run_screen.is_live
        app.feed.events = h.training()[-3:] + h.completed()[-3:]
        await settled(pilot, app)
        assert not app.run_screen.is_live
        assert "COMPLETED" in str(header.render())
        assert "completed: 290 steps" in str(app.run_screen.query_one(AlertStrip).render())


async def test_predictions_are_a_panel_of_their_own() -> None:
    app = RunApp([*h.running(), h.predictions(29, 8.0)])
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        assert len(visible(app)) == 5
        await pilot.press("7")
        await pilot.pause()
        assert visible(app) == ["predictions"]
        shown = str(app.run_screen.query_one("#predictions TextView", TextView).render())
        assert "96.7 % of 90 examples right" in shown
        assert "cat → horse  2 (6.7 %)" in shown
        assert "7       4.5  horse  cat" in shown
        await pilot.press("escape")
        await pilot.pause()
        assert len(visible(app)) == 5


async def test_beside_the_worst_examples_are_their_pictures(tmp_path: Path) -> None:
    found = h.predictions(29, 8.0)
    picture = encode_png(np.full((28, 28), 200, np.uint8))
    shown = MediaFolder(RunDir(tmp_path)).write(WORST_EXAMPLES, 29, [("image", picture, "7: horse")] * 2)
    app = RunApp([*h.running(), found, *shown], path=tmp_path)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("7")
        await until(pilot, lambda: bool(app.run_screen.query_one("#beside Pictures", Pictures).size.height > 8))
        pictures = app.run_screen.query_one("#beside Pictures", Pictures)
        lines = [pictures.render_line(y).text for y in range(pictures.size.height)]
        assert "7       4.5  horse  cat" in str(app.run_screen.query_one("#wrong", TextView).render())
        assert sum("7: horse" in line for line in lines) == 1


async def test_a_click_opens_the_panel_that_the_tab_names() -> None:
    app = RunApp([*h.running(), h.predictions(29, 8.0)])
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        tabs = app.run_screen.query_one(PanelTabs)
        # There is no failure: the sixth of them is the seventh panel.
        await pilot.click("#tabs", offset=(str(tabs.render()).index("7 predictions"), 0))
        await pilot.pause()
        assert visible(app) == ["predictions"]


async def test_a_failure_shows_its_first_cause_and_traceback() -> None:
    app = RunApp(h.running(last_step=72))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        assert visible(app) == ["loss"]
        app.feed.events = interrupted.failed()[-3:]
        await until(pilot, lambda: bool(app.run_screen.state.failures))
        await pilot.pause()
        assert visible(app) == ["failure"]
        told = text_of(app.run_screen.query_one(FailurePanel))
        assert told.startswith("✖ first cause: rank 1 failed at step 72: RuntimeError: CUDA error")
        assert 'torch_ddp.py", line 84, in step' in told
        assert told.index("illegal memory") < told.index("Connection closed by peer")
        await pilot.press("5")
        await pilot.pause()
        assert visible(app) == ["log"]


async def test_of_many_ranks_the_dead_one_is_in_sight_and_its_failure_leaves_no_empty_line() -> None:
    failed = replace(interrupted.failed()[-3], rank=13, traceback="RuntimeError: out of luck")
    app = RunApp([*h.running(16), failed])
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await until(pilot, lambda: "failure" in visible(app))
        rows = app.run_screen.query_one("#ranks #rows", TextView)
        assert str(rows._lines[0]).split()[0] == "13"
        panel = app.run_screen.query_one(FailurePanel)
        assert panel.region.height == 2 + panel.virtual_size.height


async def test_the_chart_draws_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long a loaded machine takes from one line of this test to the next.
    monkeypatch.setattr("tuiapp.widgets.chart_panel.REDRAW_S", 3600.0)
    events = h.running()
    app = RunApp(events)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        chart = app.run_screen.query_one(ChartPanel)
        await until(pilot, lambda: is_current(chart) and chart.drawings > 0)
        drawings = chart.drawings
        for _ in range(3):
            app.run_screen.charts.update()
        assert chart.drawings == drawings
        app.feed.events.append(evaluation_event(200, 0.1, 0.9))
        await until(pilot, lambda: chart.drawings == drawings + 1)


async def test_leaving() -> None:
    app = RunApp(h.running())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("q")
        assert app.left == 1
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is not app.run_screen)
        await until(pilot, lambda: app.feed.calls == ["start", "close"])


async def test_curves_that_begin_right_after_an_empty_drawing_are_drawn() -> None:
    app = RunApp([])
    async with app.run_test(size=LARGE) as pilot:
        chart, charts, state = app.run_screen.query_one(ChartPanel), app.run_screen.charts, app.run_screen.state
        charts.show(state)
        for event in h.running():
            apply(state, event)
        # Nothing comes after it: a replay was paused there, or the run hangs.
        charts.show(state)
        await until(pilot, lambda: is_current(chart) and chart.drawings > 0)


async def test_beneath_the_charts_all_lines_of_the_sharding_are_seen() -> None:
    """What is said of the replicas takes a line more than before they were compared."""
    app = RunApp([*h.running(), Replicas(step=116, replicas=2, arrays=14, **h.at(8.5))])
    async with app.run_test(size=(200, 60)) as pilot:
        await settled(pilot, app)
        panel = app.run_screen.query_one(ShardingMap)
        assert "weights: equal" in str(panel.query_one(TextView).render())
        assert panel.query_one(TextView).size.height <= panel.size.height
