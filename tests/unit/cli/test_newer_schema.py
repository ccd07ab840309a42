"""A run of another schema, as a later version of tuiapp writes it: every view says so, nothing changes it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.command_line import Command
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.events import JOURNAL_SCHEMA, RunStarted
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise


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
