"""A run whose journal an earlier version of tuiapp wrote: it is listed, and one sentence says what opens it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests import histories as h
from tests.cli.terminal import Command
from tests.contract.recorded import record, record_checkpoint
from tests.screens.run_app import until
from tests.screens.runs_app import ListLister, RunsApp
from trainers.contract.events import JOURNAL_SCHEMA, Metrics, encode
from trainers.contract.metrics import LOSS
from trainers.contract.rundir import RunDir
from trainers.launch import LaunchError, resume
from trainers.state.summary import summarise

SENTENCE = f"its journal has schema 1: tuiapp 0.1.0 opens it, this version reads schema {JOURNAL_SCHEMA}"


def write_older(run: RunDir, *, ended: bool = True) -> None:
    """Rewrite a run's journal as version 0.1.0 wrote it."""
    lines = []
    for number, event in enumerate(h.completed(), start=1):
        line = encode(msgspec.structs.replace(event, seq=number))
        if isinstance(event, Metrics):
            if LOSS not in event.values:
                continue
            size = len(event.values[LOSS])
            steps = {
                "type": "steps", "seq": number, "time": event.time, "mono": event.mono, "rank": event.rank,
                "first_step": event.first_step, "losses": event.values[LOSS], "seconds": [0.05] * size,
                "examples": [24] * size, "learning_rates": [0.001] * size,
            }  # fmt: skip
            line = msgspec.json.encode(steps) + b"\n"
        lines.append(line.replace(b'"schema":%d,' % JOURNAL_SCHEMA, b""))
    run.journal.write_bytes(b"".join(lines if ended else lines[:-1]))


@pytest.fixture
def older(runs_dir: Path) -> RunDir:
    run = record(runs_dir, h.RUN_ID, h.completed())
    record_checkpoint(run, 29)
    write_older(run)
    return run


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_it_is_listed_with_what_its_first_and_last_event_say(tuiapp: Command, older: RunDir) -> None:
    info = summarise(older)
    assert (info.status, info.is_readable, info.older) == ("completed", False, SENTENCE)
    assert (info.summary.steps, info.started) == (290, h.START)
    (listed,) = json.loads(tuiapp("runs", "--json").out)
    assert (listed["status"], listed["steps"], listed["problem"]) == ("completed", 290, SENTENCE)
    assert "completed" in tuiapp("runs").out
    shown = tuiapp("show", "latest")
    assert shown.code == 0
    assert SENTENCE in shown.out
    write_older(older, ended=False)
    assert (summarise(older).status, summarise(older).older) == ("lost", SENTENCE)
    assert "--resume" not in tuiapp("show", "latest").out


@pytest.mark.parametrize("words", [["export"], ["run", "--resume"], ["attach"], ["replay"]])
def test_a_sentence_says_what_opens_it(tuiapp: Command, older: RunDir, runs_dir: Path, words: list[str]) -> None:
    before = contents(runs_dir)
    done = tuiapp(*words, "latest")
    assert (done.code, done.out) == (2, "")
    assert SENTENCE in done.err
    assert len(done.err.splitlines()) == 1
    assert contents(runs_dir) == before


def test_the_library_does_not_resume_it(older: RunDir) -> None:
    with pytest.raises(LaunchError, match=r"schema 1: tuiapp 0\.1\.0 opens it"):
        resume(older)


def test_it_can_be_removed(tuiapp: Command, older: RunDir) -> None:
    assert tuiapp("rm", "--yes", "latest").code == 0
    assert not older.path.exists()


def test_one_whose_first_line_is_damaged_is_read_as_far_as_it_goes(older: RunDir) -> None:
    older.journal.write_bytes(b"{\n" + encode(h.steps(0, 1, 5, 1.0)))
    assert summarise(older).older == ""


async def test_the_runs_screen_says_it_instead_of_opening_it(older: RunDir) -> None:
    app = RunsApp(ListLister([summarise(older)]))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.runs_screen.current is not None)
        await pilot.press("enter")
        await until(pilot, lambda: any(SENTENCE in notice.message for notice in app._notifications))
        await pilot.press("e", "u", "p")
        await pilot.pause()
        assert app.screen is app.runs_screen
        assert app.asked == []
