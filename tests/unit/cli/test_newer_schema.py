"""A run of another schema, as a later version of tuiapp writes it: every view says so, nothing changes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.command_line import Command
from tests.kit.run_app import RunApp, until
from tuiapp.actions.action import ActionError
from tuiapp.actions.delete import remove_run
from tuiapp.screens.confirm import Choice
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.events import JOURNAL_SCHEMA, RunStarted
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import LaunchError, resume
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.alert_strip import AlertStrip


@pytest.fixture(params=[0, JOURNAL_SCHEMA + 1, JOURNAL_SCHEMA - 1], ids=["run.toml", "journal", "earlier journal"])
def newer(request: pytest.FixtureRequest, runs_dir: Path) -> RunDir:
    """A run with a checkpoint, one of whose files is of another schema."""
    run = RunDir(runs_dir / h.RUN_ID)
    (run.checkpoints / "step-00000018").mkdir(parents=True)
    run.commands.mkdir()
    text = to_toml(RunConfig(platform="cpu", devices=2))
    run.config.write_text(text if request.param else text.replace("schema = 1", "schema = 2"))
    schema = request.param or JOURNAL_SCHEMA
    events = [
        msgspec.structs.replace(event, schema=schema) if isinstance(event, RunStarted) else event
        for event in h.completed()
    ]
    writer = JournalWriter(run.journal)
    writer.append(events)
    writer.close()
    return run


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_verb(tuiapp: Command, newer: RunDir, runs_dir: Path) -> None:
    before = contents(runs_dir)
    assert summarise(newer).status == "newer"
    assert "newer" in tuiapp("runs").out
    assert json.loads(tuiapp("runs", "--json").out)[0]["status"] == "newer"
    done = tuiapp("show", "latest")
    assert done.code == 0
    assert "schema" in done.out
    assert "--resume" not in done.out
    for words in (
        ["run", "--resume", "latest"],
        ["stop", "latest"],
        ["stop", "--now", "latest"],
        ["checkpoint", "latest"],
        ["rm", "--yes", "latest"],
        ["export", "latest"],
    ):
        done = tuiapp(*words)
        assert done.code != 0, (words, done)
        assert "newer" in done.err or "schema" in done.err, (words, done)
        assert contents(runs_dir) == before, words


def test_a_live_one(tuiapp: Command, newer: RunDir, runs_dir: Path) -> None:
    lock = newer.take_lock()
    before = contents(runs_dir)
    for words in (["stop", "latest"], ["checkpoint", "latest"]):
        done = tuiapp(*words)
        assert done.code == 2
        assert "newer version of tuiapp" in done.err
    assert contents(runs_dir) == before
    os.close(lock)


def test_the_library(newer: RunDir, runs_dir: Path) -> None:
    before = contents(runs_dir)
    with pytest.raises(LaunchError, match="newer version of tuiapp"):
        resume(newer)
    with pytest.raises(ActionError, match="newer version of tuiapp"):
        remove_run(newer)
    assert contents(runs_dir) == before


@pytest.mark.nightly
async def test_the_run_screen(newer: RunDir, runs_dir: Path) -> None:
    before = contents(runs_dir)
    app = RunApp(h.running(), path=newer.path)
    async with app.run_test(size=(120, 40)) as pilot:
        strip = app.run_screen.query_one(AlertStrip)
        await until(pilot, lambda: "newer version of tuiapp" in str(strip.render()))
        await pilot.press("S", "s")
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.run_screen)
        await app.workers.wait_for_complete()
    assert contents(runs_dir) == before
