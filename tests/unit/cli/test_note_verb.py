"""`tuiapp note`, and runs by name, tag and note in the other commands."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.kit import histories, interrupted
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, Change, change_about, read_about

FIRST, SECOND, THIRD = (
    "20261120T101500-torch-ddp-net-3fa1",
    "20261120T101400-torch-ddp-net-3fa2",
    "20261120T101300-torch-ddp-net-3fa3",
)


@pytest.fixture
def runs(runs_dir: Path) -> list[RunDir]:
    return [
        record(runs_dir, FIRST, histories.completed()),
        record(runs_dir, SECOND, interrupted.failed()),
        record(runs_dir, THIRD, interrupted.stopped()),
    ]


def editor(tmp_path: Path, script: str) -> str:
    """A program that changes the file it is given."""
    program = tmp_path / "an editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"'{program}' --wait"


def test_changes(tuiapp: Command, runs: list[RunDir]) -> None:
    done = tuiapp("note", FIRST, "--name", "baseline", "--tag", "sweep", "--tag", "lr", "-m", "warm-up\nhelps")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"baseline · {FIRST} · sweep, lr · a note of 13 characters\n"
    assert tuiapp("note", "baseline", "--untag", "lr", "--name", "base line").code == 0
    assert read_about(runs[0])[0] == About(name="base line", tags=("sweep",), note="warm-up\nhelps")


def test_the_editor(tuiapp: Command, runs: list[RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    done = tuiapp("note", FIRST)
    assert done.code == 2
    assert "Give the note with -m TEXT, or set EDITOR" in done.err
    change_about(runs[0], Change(note="before"))
    monkeypatch.setenv("EDITOR", editor(tmp_path, 'echo after >> "$2"'))
    assert tuiapp("note", FIRST).code == 0
    assert read_about(runs[0])[0].note == "beforeafter"
    monkeypatch.setenv("EDITOR", editor(tmp_path, 'echo lost > "$2"; exit 3'))
    done = tuiapp("note", FIRST)
    assert (done.code, "ended with 3: the note is unchanged" in done.err) == (2, True)
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert tuiapp("note", FIRST).code == 2
    assert read_about(runs[0])[0].note == "beforeafter"


def test_found_by_name(tuiapp: Command, runs: list[RunDir]) -> None:
    change_about(runs[0], Change(name="baseline"))
    change_about(runs[1], Change(name="lr/0.1"))
    change_about(runs[2], Change(name="2"))
    assert json.loads(tuiapp("show", "baseline", "--json").out)["run"] == FIRST
    assert json.loads(tuiapp("show", "lr/0.1", "--json").out)["run"] == SECOND
    assert json.loads(tuiapp("show", "2", "--json").out)["run"] == THIRD, "the ids that begin with 2 are many"
    assert "Did you mean 'baseline'?" in tuiapp("show", "baselin").err
    assert tuiapp("show", "lr/0.2").err == "tuiapp: lr/0.2 is not a run directory: it has no run.toml.\n"
    change_about(runs[1], Change(name="baseline"))
    done = tuiapp("show", "baseline")
    assert (done.code, done.err) == (2, f"tuiapp: 2 runs have the name 'baseline': {FIRST}, {SECOND}. Type an id.\n")


def test_shown(tuiapp: Command, runs: list[RunDir]) -> None:
    change_about(runs[0], Change(name="baseline", tags=("sweep", "lr"), note="warm-up\nhelps"))
    lines = tuiapp("show", FIRST).out.splitlines()
    assert lines[:3] == [f"run         {FIRST}", "name        baseline", "tags        sweep, lr"]
    note = lines.index("note")
    assert lines[note + 1 : note + 3] == ["  warm-up", "  helps"]
    facts = json.loads(tuiapp("show", FIRST, "--json").out)
    assert (facts["name"], facts["tags"], facts["note"]) == ("baseline", ["sweep", "lr"], "warm-up\nhelps")
    assert tuiapp("note", SECOND, "--group", "rates").err == f"{SECOND} · group rates\n"
    assert [line.split()[1] for line in tuiapp("runs", "group:rates").out.splitlines()[1:]] == ["rates"]
    assert tuiapp("note", SECOND, "--group", "").code == 0
    heading, *rows = tuiapp("runs").out.splitlines()
    assert heading.split()[:4] == ["RUN", "NAME", "TAGS", "STATE"]
    assert rows[0].split()[:5] == [FIRST, "baseline", "sweep,", "lr", "completed"]
    assert rows[1].split()[:4] == [SECOND, "–", "–", "failed"]
    assert f"a  baseline · {FIRST} · sweep, lr · ★ highest test/accuracy\n" in tuiapp("compare", FIRST, SECOND).out
    assert tuiapp("stop", "baseline").err == f"tuiapp: baseline · {FIRST} is not running: completed.\n"
    assert tuiapp("rm", "-y", "baseline").err == f"deleted baseline · {FIRST}\n"
    assert not runs[0].path.exists()


def test_filters(tuiapp: Command, runs: list[RunDir]) -> None:
    change_about(runs[0], Change(name="Baseline", tags=("sweep",)))
    change_about(runs[1], Change(tags=("sweeps",), note="the baseline, but wider"))

    def found(*words: str) -> list[str]:
        return [run["run"] for run in json.loads(tuiapp("runs", "--json", *words).out)]

    assert found("baseline") == [FIRST, SECOND]
    assert found("baseline", "wider") == [SECOND]
    assert found("sweep") == [FIRST, SECOND]
    assert found("tag:sweep") == found("tag:SWEEP") == [FIRST]
    assert found("tag:sweep", "wider") == found("tag:nothing") == []
    assert found("tag!=sweep") == [SECOND, THIRD]
