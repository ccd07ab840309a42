"""The Run screen with an injected feed, over a replay, and the screen of its profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from textual.widget import Widget
from textual.widgets import Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.reported import evaluation_event
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tests.kit.shown import is_current, shown_lines
from tests.screens.test_run_control import said, told
from tests.unit.state.test_replay import Clock, Source, journal
from tuiapp.feeds.feed import ReplayFeed
from tuiapp.screens.profile import ProfileScreen
from tuiapp.screens.run import RunScreen
from tuiapp.screens.run_panels import PANELS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.contract import events as ev
from tuiapp.trainers.contract.events import WORST_EXAMPLES, Predictions, Replicas
from tuiapp.trainers.contract.media import MediaFolder, encode_png
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.widgets.chart_panel import ChartPanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.media_panel import Pictures
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.predictions_panel import MOST_TOKENS, PredictionsPanel
from tuiapp.widgets.run_header import AlertStrip, ReplayBar, RunHeader
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


def test_of_a_text_it_shows_what_the_model_writes_and_the_most_frequent_tokens() -> None:
    counts = [[0, 0] for _ in range(256)]
    counts[ord("e")], counts[ord(" ")] = [30, 70], [150, 50]
    for number in range(MOST_TOKENS):
        counts[number] = [0, 1]
    found = Predictions(
        step=29,
        counts=counts,
        names=list(find_dataset("shakespeare").class_names),
        samples=["Now is the winter of our discontent\n\x1b[31mMade\nglorious ", "summer"],
    )
    state = RunState(planned={"dataset": "shakespeare", "context": 128}, predictions=found)
    lines = [line.plain.rstrip() for line in PredictionsPanel().lines(state, 30)]
    assert lines[:10] == [
        "57.0 % of 316 tokens right  after step 29",
        "",
        "the model writes",
        "  Now is the winter of our",
        "  discontent",
        "  Made",
        "  glorious",
        "",
        "the model writes",
        "  summer",
    ]
    assert lines[11].split() == ["token", "times", "accuracy"]
    assert [line.split()[:4] for line in lines[12:14]] == [["space", "200", "75.0", "%"], ["e", "100", "30.0", "%"]]
    assert len(lines) == 12 + MOST_TOKENS


def text(app: RunApp) -> str:
    assert isinstance(app.screen, ProfileScreen)
    return str(app.screen.query_one("#profile", Static).content)


async def test_the_key_has_steps_profiled_and_shows_them(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("P")
        assert await told(pilot, app.run_dir) == ["profile=10"]
        await until(pilot, lambda: text(app) == "Profiling 10 steps …")
        app.feed.events.append(h.steps(0, 131, 133, 8.9))
        await until(pilot, lambda: text(app) == "Profiling step 3 of 10 …")
        app.feed.events += h.profiles(step=131)
        await until(pilot, lambda: "of rank 0, per step" in text(app))
        assert "steps 131 to 140" in text(app)
        await pilot.press("r")
        await until(pilot, lambda: "of rank 1, per step" in text(app))
        # Opened again it shows what there is, and asks for no more.
        await pilot.press("escape", "P")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen) and "steps 131" in text(app))
        assert list(app.run_dir.commands.iterdir()) == []
        await pilot.press("P")
        assert await told(pilot, app.run_dir) == ["profile=10"]


async def test_a_profiler_that_fails_is_told(tmp_path: Path) -> None:
    app = RunApp(h.running(), path=tmp_path)
    app.run_dir.commands.mkdir()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("P")
        await until(pilot, lambda: text(app) == "Profiling 10 steps …")
        app.feed.events.append(
            ev.Alert(kind="profile", rank=1, step=131, text="the profiler did not start", **h.at(20))
        )
        await until(pilot, lambda: text(app) == "Rank 1: the profiler did not start. P profiles the next 10 steps.")


@pytest.mark.nightly
async def test_of_an_ended_run_nothing_is_asked(tmp_path: Path) -> None:
    app = RunApp(h.completed(), path=tmp_path)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ProfileScreen) and "of a run that trains" in text(app))
        await pilot.press("P", "r")
        await until(pilot, lambda: "No step was profiled." in said(app))


def replay_app(path: Path, clock: Clock) -> tuple[RunApp, ReplayFeed]:
    run = journal(path, h.completed())
    feed = ReplayFeed(run, clock=clock, source=Source)
    app = RunApp(path=path)
    app.run_screen = RunScreen(run, feed)
    return app, feed


async def test_a_replay_is_marked_and_can_be_paused_moved_and_sped_up(tmp_path: Path) -> None:
    clock = Clock()
    app, feed = replay_app(tmp_path, clock)
    async with app.run_test(size=LARGE) as pilot:
        screen = app.run_screen
        await until(pilot, lambda: screen.is_mounted and feed.duration > 0)
        clock.now += 8.1
        await until(pilot, lambda: screen.state.step == 120)
        bar = screen.query_one(ReplayBar)
        await until(pilot, lambda: "8s of 17s" in str(bar.render()))
        assert "REPLAY ×1" in str(bar.render())
        assert "RUNNING" in str(screen.query_one(RunHeader).render())
        assert not screen.is_live
        await pilot.press("space")
        assert feed.paused
        await until(pilot, lambda: "❚❚ REPLAY" in str(bar.render()))
        await pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert feed.speed == 2.0
        await pilot.press("full_stop", "full_stop")
        assert feed.position == pytest.approx(8.1 + 2 * 0.05 * 17.5)
        await pilot.press(*["comma"] * 30)
        await until(pilot, lambda: screen.state.step == 0 and "no array" in text_of(screen.query_one("#sharding")))
        log = screen.query_one(LogView)
        await until(pilot, lambda: len(shown_lines(log)) == 1)
        await pilot.press("space", *["full_stop"] * 30)
        await until(pilot, lambda: screen.state.status == "completed")
