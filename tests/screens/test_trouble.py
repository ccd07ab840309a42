"""What a Run screen leads to: alerts and failures, a Slurm job that waits, and what may follow an end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest.mock import patch

import pytest
from textual.app import App
from textual.content import Content
from textual.widgets import Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit import node_histories as nodes
from tests.kit.digest_runs import digest_of
from tests.kit.folding import fold
from tests.kit.recorded import record
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tuiapp.app import TuiApp
from tuiapp.screens import quit
from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.dialog import Choice
from tuiapp.screens.export_dialog import ExportDialog
from tuiapp.screens.quit import _live_question
from tuiapp.screens.run import RunScreen
from tuiapp.screens.run_panels import is_alone
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.contract.events import Alert, AnyEvent, Queued, Stacks, encode
from tuiapp.trainers.contract.orphans import Orphan
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.run_header import AlertStrip

STACKS = """Thread 0x00007f8a (most recent call first):
  File "/venv/trainers/rank/reporter.py", line 190, in _send_forever

Thread 0x00007f8b (most recent call first):
  File "/home/ada/[bold]model.py", line {line}, in step
  File "/venv/trainers/backends/torch_ddp.py", line 118, in train"""
HANG = "no progress for 30 s: rank 1 is behind, at step 129; rank 0 waits at step 130"


def hanging() -> list[AnyEvent]:
    """Two ranks, one of which does not get to its collective."""
    return [
        *h.running(last_step=120),
        *[h.steps(rank, 121, 130 - rank, 8.5) for rank in (0, 1)],
        *[Stacks(rank=rank, pid=4121 + rank, text=STACKS.format(line=20 + rank), **h.at(40.0)) for rank in (0, 1)],
        Alert(kind="hang", severity="error", rank=1, step=129, text=HANG, **h.at(40.1)),
    ]


def _told(app: RunApp) -> str:
    content = app.run_screen.query_one(FailurePanel).query_one(Static).content
    return content.plain if isinstance(content, Content) else str(content)


async def test_the_panel_of_trouble_is_called_after_what_it_shows() -> None:
    app = RunApp(h.running(last_step=72), now=41.0)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        tabs, panel = app.run_screen.query_one(PanelTabs), app.run_screen.query_one(FailurePanel)
        assert tabs.names[-2] == "5 log"
        app.feed.events = hanging()[-3:]
        await until(pilot, lambda: tabs.names[-2] == "6 hang")
        assert (panel.border_title, tabs.active) == ("6 hang", 5)
        # The hang ends with ranks that are killed: what they say comes first, in the same place.
        app.feed.events = interrupted.failed()[-3:]
        await until(pilot, lambda: tabs.names[-2] == "6 failure")
        assert (panel.border_title, tabs.active, len(tabs.names)) == ("6 failure", 5, 7)


@pytest.mark.nightly
async def test_an_alert_is_dismissed_until_there_is_another() -> None:
    app = RunApp(interrupted.with_nan(), now=9.0)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        strip = app.run_screen.query_one(AlertStrip)
        await until(pilot, lambda: strip.display)
        await pilot.press("A")
        await until(pilot, lambda: not strip.display)
        app.feed.events = [Alert(kind="disk", text="the disk is nearly full", **h.at(9.0))]
        await until(pilot, lambda: strip.display)
        await pilot.click(AlertStrip)
        await until(pilot, lambda: not strip.display)


class Bare(App[None]):
    """Nothing but the question about strays."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__()
        self._runs_dir = runs_dir

    def on_mount(self) -> None:
        self.run_worker(quit.offer_to_end_strays(self, self._runs_dir))


@pytest.mark.parametrize(("key", "ends"), [("enter", True), ("escape", False)])
async def test_what_a_run_left_behind_is_ended_when_the_user_says_so(tmp_path: Path, key: str, ends: bool) -> None:
    left = [Orphan(4121, 77, f"{h.RUN_ID}-{'0' * 16}", "0", "python -P -m tuiapp.trainers.rank.process x 0")]
    with (
        patch.object(quit, "find_orphans", return_value=left),
        patch.object(quit, "end_orphans", return_value=[]) as end,
        patch.object(quit, "ON_THEIR_WAY_S", 0.0),
    ):
        app = Bare(tmp_path)
        async with app.run_test(size=SMALL) as pilot:
            await until(pilot, lambda: isinstance(app.screen, Choice))
            assert f"{h.RUN_ID}: rank 0 (pid 4121)" in str(app.screen.query_one("#text", Static).content)
            await pilot.press(key)
            await pilot.pause()
            await app.workers.wait_for_complete()
            assert end.called == ends


REQUEUED = Queued(job="12", reason="BeginTime", start="2026-11-20T11:30:00", **h.at(20.0))


def screen_lines(app: RunApp) -> list[str]:
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [True, False])
async def test_it_waits_again_once_it_was_requeued(tmp_path: Path, whole: bool) -> None:
    events = [nodes.queued(), *interrupted.stopped()]
    app = RunApp([*(events if whole else [digest_of(RunDir(tmp_path), events)]), REQUEUED])
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        lines = screen_lines(app)
        assert re.match(r" ◌ QUEUED +Slurm job 12 is queued · BeginTime", lines[0])
        assert "waiting " in lines[2]
        assert not any(" ETA " in line or "examples/s" in line for line in lines[:3])
        assert "Save" not in lines[-1]
        assert any("nothing to sample before it starts" in line for line in lines)
        assert sum("◌ queued" in line for line in lines) == 2


def test_lists_know_what_a_requeued_run_has_reached(tmp_path: Path) -> None:
    events = [nodes.queued(), *interrupted.stopped()]
    run = record(tmp_path, "20261120T101500-torch-ddp-net-3fa1", [*events, REQUEUED])
    lock = run.take_lock()
    try:
        info = summarise(run)
        assert (info.status, info.summary.steps) == ("queued", 72)
        assert info.summary.epochs is not None
        assert info.started == events[1].time
    finally:
        os.close(lock)


def test_lists_say_why_it_waits(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    trouble = Alert(kind="slurm", text="Slurm does not answer", **h.at(9.0))
    run.journal.write_bytes(encode(nodes.queued()) + encode(trouble))
    lock = run.take_lock()
    try:
        info = summarise(run)
        assert info.status == "queued"
        assert info.summary.seconds >= 0
        assert info.reason == "Slurm job 12 is queued · Resources · expected to start 2026-11-20 11:30:00"
        question = _live_question([run])
        assert question
        assert question.title == "A run is queued"
    finally:
        os.close(lock)


def test_only_one_rank_that_is_known_is_alone() -> None:
    waits, one = fold([nodes.queued()]), fold(h.running(1))
    waits.config["platform"] = one.config["platform"] = "cpu"
    assert [is_alone(waits), is_alone(one), is_alone(fold(h.running(2)))] == [False, True, False]


@pytest.mark.nightly
async def test_from_a_completed_run_to_what_comes_next(tmp_path: Path, machine: Machine) -> None:
    other = record(tmp_path, "20261119T101500-torch-ddp-mlp-aaaa", h.completed())
    run = record(tmp_path, h.RUN_ID, h.completed())
    app = TuiApp(runs_dir=tmp_path, machine=machine, run=run)
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and "e" in app.screen.active_bindings)
        await pilot.press("ctrl+y")
        assert app.clipboard == str(run.path)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ExportDialog))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen) and app.screen.current is not None)
        await until(pilot, lambda: "1 marked" in str(app.screen.query_one("#heading", Static).content))
        await pilot.press("end", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        assert isinstance(app.screen, CompareScreen)
        assert [one.info.directory for one in app.screen._feed.runs] == [run, other]
        await pilot.press("escape", "home", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen) and "a" in app.screen.active_bindings)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen))
        assert "--like" in (app.screen.command or "") if isinstance(app.screen, ConfigureScreen) else False


def test_the_log_tells_epochs_checkpoints_and_problems_apart() -> None:
    state = RunState(h.RUN_ID)
    for event in [*h.completed(), h.checkpoint(29, 9.0)]:
        apply(state, event)
    streams = {entry.text.split()[0]: entry.stream for entry in state.log}
    assert (streams["epoch"], streams["checkpoint"], streams["completed"]) == ("milestone", "checkpoint", "milestone")
