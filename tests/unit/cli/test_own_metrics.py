"""The commands on runs that report metrics of any names, and neither totals nor step times."""

from __future__ import annotations

import csv
import io
import json
from io import StringIO
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.command_line import Command
from tests.kit.recorded import record
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.verbs.narration import PlainNarrator, live_view, progress_words

OTHER = own.RUN_ID[:-1] + "2"


@pytest.fixture
def recorded(runs_dir: Path) -> Path:
    record(runs_dir, own.RUN_ID, own.completed(2))
    record(runs_dir, OTHER, own.running())
    return runs_dir


def test_show_and_runs_give_what_is_known(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("show", own.RUN_ID)
    assert (done.code, done.err) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in done.out.splitlines()[:9] if " " in line)
    assert (facts["steps"], facts["loss"], facts["examples/s"]) == ("120", "–", "–")
    for name in (own.RUN_ID, OTHER):
        shown = json.loads(tuiapp("show", name, "--json").out)
        assert (shown["steps"], shown["epochs"], shown["missing_steps"]) == (120, None, [])
    # Where no end sums it up, a script's loss is found by its name.
    assert shown["loss"] == pytest.approx(own.value_of("train/loss", 120), abs=1e-3)
    listed = tuiapp("runs").out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [OTHER, own.RUN_ID]
    assert "120" in listed[1].split()


def test_compare_and_export(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("compare", own.RUN_ID, OTHER)
    assert (done.code, done.err) == (0, "")
    lines = {line.split("  ")[0]: line.split()[-2:] for line in done.out.splitlines() if line}
    assert lines["epochs done"] == ["–", "–"]
    assert lines["steps"] == ["120", "120"]
    rows = list(csv.DictReader(io.StringIO(tuiapp("export", OTHER, "--what", "metrics").out)))
    assert list(rows[0])[6:] == [*own.TRAIN, *own.EVALUATED]
    assert [int(row["step"]) for row in rows if row["eval/f1"]] == [20, 40, 60, 80, 100, 120]
    assert float(rows[0]["train/ppl"]) == own.value_of("train/ppl", 2)


def test_a_headless_run_says_what_is_known() -> None:
    stream, state = StringIO(), RunState()
    narrator = PlainNarrator(stream, RunDir(Path("/home/ada/runs") / own.RUN_ID))
    events = [*own.running(2), own.logged(120, ["test/accuracy"], seconds=62.0)]
    for event in events:
        apply(state, event)
        narrator.event(event, state)
    said = [line.split("  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert said[:2] == [f"run {own.RUN_ID}", "run started on gpubox: 2 rank processes"]
    assert said[-1].startswith("accuracy ")
    assert progress_words(state).startswith("step 120 · ")
    lines = live_view(state, h.START + 62.0, 120)
    assert lines[0] == "running       step 120"
    assert "elapsed 1m 02s" in lines[1]
    for unknown in ("epoch", "/0", " 0 %", "─"):
        assert unknown not in "\n".join(lines)
