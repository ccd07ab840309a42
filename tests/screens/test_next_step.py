"""What an ended run's screen leads to: export, comparison, another run, its directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static

from tests.kit import histories as h
from tests.kit.recorded import record
from tests.kit.run_app import LARGE, until
from tuiapp.app import TuiApp
from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.export_dialog import ExportDialog
from tuiapp.screens.run import RunScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState


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
