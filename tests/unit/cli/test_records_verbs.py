"""`tuiapp runs` with words, `note`, `compare`, `export`, `rm` and `run --like`, on recorded run directories."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories, interrupted
from tests.kit import histories as h
from tests.kit.command_line import Command
from tests.kit.recorded import CONFIG, record, record_checkpoint
from tuiapp.trainers.contract.events import Metrics
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, Change, change_about, read_about

COMPLETED, FAILED, OTHER = (
    "20261120T101500-torch-ddp-net-3fa1",
    "20261120T101400-torch-ddp-net-3fa2",
    "20261120T101300-jax-pmap-mlp-3fa3",
)


@pytest.fixture
def recorded(runs_dir: Path) -> Path:
    record(runs_dir, COMPLETED, h.completed())
    record(runs_dir, FAILED, interrupted.failed(), msgspec.structs.replace(CONFIG, learning_rate=0.01))
    other = msgspec.structs.replace(CONFIG, backend="jax-pmap", model="mlp")
    record(runs_dir, OTHER, interrupted.stopped(), other)
    return runs_dir


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["failed"], [FAILED]),
        (["jax-pmap"], [OTHER]),
        (["TORCH", "net", "cpu"], [COMPLETED, FAILED]),
        (["--sort", "loss", "-n", "1"], [COMPLETED]),
        (["--reverse"], [OTHER, FAILED, COMPLETED]),
        (["--sort", "accuracy"], [COMPLETED, FAILED, OTHER]),
        (["--sort", "model"], [OTHER, COMPLETED, FAILED]),
        (["nothing", "like", "it"], []),
    ],
)
def test_a_part_of_the_list(tuiapp: Command, recorded: Path, words: list[str], found: list[str]) -> None:
    assert [run["run"] for run in json.loads(tuiapp("runs", *words, "--json").out)] == found


@pytest.mark.parametrize("arguments", [["--sort", "taste"], ["-n", "0"], ["-n", "many"], ["-n", "٢"], ["-n", "1_0"]])
def test_what_the_list_refuses(tuiapp: Command, recorded: Path, arguments: list[str]) -> None:
    assert tuiapp("runs", *arguments).code == 2


def test_only_keys_that_differ_are_compared(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("compare", COMPLETED, FAILED)
    assert (done.code, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines() if line]
    assert rows[:4] == [
        ["a", COMPLETED, "·", "★", "highest", "test/accuracy"],
        ["b", FAILED],
        ["differing", "keys", "★", "a", "b"],
        ["learning_rate", "0.001", "0.01"],
    ]
    assert rows[4][0] == "results"
    assert ["state", "✓", "completed", "✖", "failed"] in rows
    facts = json.loads(tuiapp("compare", FAILED, COMPLETED, "--json").out)
    assert facts["differing"] == {"learning_rate": [0.01, 0.001]}
    assert [run["run"] for run in facts["runs"]] == [FAILED, COMPLETED]


def test_steps_as_csv(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("export", COMPLETED)
    assert (done.code, done.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 2 * 290
    assert list(rows[0])[:7] == ["attempt", "time", "rank", "step", "steps", "joined", "loss"]
    last = [row for row in rows if row["rank"] == "1"][-1]
    assert (last["step"], float(last["loss"]), last["steps"]) == ("290", h.loss_at(290, 1), "1")


def test_steps_as_jsonl_with_what_was_not_finite(tuiapp: Command, runs_dir: Path) -> None:
    record(runs_dir, COMPLETED, interrupted.with_nan())
    rows = [json.loads(line) for line in tuiapp("export", "latest", "--format", "jsonl").out.splitlines()]
    assert [row["loss"] for row in rows if row["rank"] == 0 and 70 <= row["step"] <= 76] == [0.5, *["NaN"] * 5, 0.6]


def test_steps_of_a_resumed_run_say_which_attempt_they_are_of(tuiapp: Command, runs_dir: Path) -> None:
    record(runs_dir, COMPLETED, [*h.running(last_step=80), *interrupted.resumed(step=72)])
    rows = [json.loads(line) for line in tuiapp("export", "latest", "--format", "jsonl").out.splitlines()]
    assert [row["attempt"] for row in rows if row["rank"] == 0 and row["step"] == 75] == [1, 2]


def test_predictions_by_class(tuiapp: Command, runs_dir: Path) -> None:
    record(runs_dir, COMPLETED, [h.started(), h.predictions(29, 5.0)])
    rows = list(csv.DictReader(io.StringIO(tuiapp("export", "latest", "--what", "predictions").out)))
    assert len(rows) == 9
    assert rows[2] == {
        "attempt": "1", "time": str(h.START + 5), "step": "29", "label": "cat", "predicted": "horse", "count": "2",
    }  # fmt: skip
    assert not any("\x1b" in row["label"] for row in rows)
    found = json.loads(tuiapp("show", "latest", "--json").out)["predictions"]
    assert found["classes"][0] == {"label": 0, "name": "cat", "examples": 30, "accuracy": 28 / 30}
    assert found["confusion"] == [[28, 0, 2], [0, 30, 0], [1, 0, 29]]
    assert found["worst"][0] == {"example": 7, "label": 2, "predicted": 0, "loss": 4.5}


def test_epochs_as_what_counts(tuiapp: Command, runs_dir: Path) -> None:
    """A resumed run has each epoch once; `show` prints the last 20, and all if asked."""
    again = h.started(attempt=2, resumed_from=29, seconds=9)
    record(runs_dir, COMPLETED, [*h.running(last_step=40), again, *(h.steps(rank, 30, 660, 50) for rank in (0, 1))])
    rows = list(csv.DictReader(io.StringIO(tuiapp("export", "latest", "--what", "epochs").out)))
    assert [(row["epoch"], row["steps"]) for row in rows[:2]] == [("1", "29"), ("2", "29")]
    assert (rows[-1]["epoch"], rows[-1]["steps"], rows[-1]["of_steps"]) == ("23", "22", "29")
    assert float(rows[0]["seconds"]) == pytest.approx(1.45)
    assert rows[0]["test_seconds"] == "0.2"
    found = json.loads(tuiapp("show", "latest", "--json").out)["by_epoch"]
    assert [one["epoch"] for one in found] == [*range(1, 24)]
    assert found[0]["loss"] == pytest.approx(float(rows[0]["loss"]))
    assert found[0]["examples_per_second"] == pytest.approx(960.0)
    printed = tuiapp("show", "latest").out
    assert "\n    4     29 " in printed
    assert "\n    3     29 " not in printed
    assert "and 3 earlier epochs: --all prints them" in printed
    assert "\n    3     29 " in tuiapp("show", "latest", "--all").out


def test_metrics_of_any_name_have_a_column(tuiapp: Command, runs_dir: Path) -> None:
    values: dict[str, list[float | None]] = {"val/ppl": [12.5], "step": [7.0], "a,\x1b[31mb": [None]}
    odd = Metrics(rank=1, first_step=3, values=values, lows={"val/ppl": [12.0]}, counts=[4], **h.at(4))
    record(runs_dir, COMPLETED, [h.started(), h.steps(0, 1, 2, 3.0), odd, h.evaluation(1, 6.0)])
    rows = list(csv.DictReader(io.StringIO(tuiapp("export", "latest", "--what", "metrics").out)))
    assert list(rows[0]) == [
        "attempt", "time", "rank", "step", "steps", "joined", "loss", "lr", "examples", "step_time", "val/ppl",
        "val/ppl_min", "metric/step", "a,b", "test/loss", "test/accuracy", "test/examples", "test/seconds",
    ]  # fmt: skip
    assert [(row["rank"], row["step"], row["steps"], row["loss"] != "") for row in rows] == [
        ("0", "1", "1", True), ("0", "2", "1", True), ("1", "6", "4", False), ("0", "29", "1", False),
    ]  # fmt: skip
    told = rows[2]
    assert (told["val/ppl"], told["val/ppl_min"], told["metric/step"], told["a,b"]) == ("12.5", "12.0", "7.0", "NaN")
    (line,) = tuiapp("export", "latest", "--format", "jsonl", "--what", "evaluations").out.splitlines()[1:]
    assert json.loads(line)["test/accuracy"] == h.evaluation(1, 6.0).values["test/accuracy"][0]
    (line,) = tuiapp("export", "latest", "--format", "jsonl").out.splitlines()[2:]
    assert json.loads(line) == {
        "attempt": 1, "time": h.START + 4, "rank": 1, "step": 6, "steps": 4, "joined": 4, "metric/step": 7.0,
        "a,b": "NaN",
    }  # fmt: skip


def test_a_file_is_written_whole_and_not_overwritten(tuiapp: Command, recorded: Path, tmp_path: Path) -> None:
    target = tmp_path / "steps.jsonl"
    done = tuiapp("export", COMPLETED, "-o", target)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"580 rows of steps: {target}\n"
    assert len(target.read_text().splitlines()) == 580
    before = target.read_bytes()
    done = tuiapp("export", COMPLETED, "-o", target, "--what", "evaluations")
    assert done.code == 2
    assert f"{target} exists" in done.err
    assert target.read_bytes() == before
    assert tuiapp("export", COMPLETED, "-o", target, "--what", "evaluations", "--force").code == 0
    assert len(target.read_text().splitlines()) == 10
    assert [name for name in os.listdir(tmp_path) if name != "home"] == ["steps.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "x.xlsx"], "unknown format '.xlsx'"),
        (["-o", "x.csv", "--format", "parquet"], "x.csv must end in .parquet"),
        (["--format", "parquet"], "parquet is not written to stdout: give -o FILE"),
        (["--format", "tensorboard"], "tensorboard is not written to stdout: give -o DIR"),
        (["--format", "tensorboard", "-o", "x", "--what", "samples"], "tensorboard holds metrics, no samples"),
        (["--format", "tensorboard", "-o", "nowhere/x"], "The directory nowhere does not exist"),
        (["--format", "tensorboard", "-o", "/dev/null", "--force"], "/dev/null is not a directory"),
        (["-o", "x.jsonl", "--format", "csv"], "x.jsonl must end in .csv"),
        (["-o", "nowhere/x.csv"], "The directory nowhere does not exist"),
        (["-o", "/dev/null", "--force"], "/dev/null is not a regular file"),
    ],
)
def test_targets_that_are_refused(tuiapp: Command, recorded: Path, arguments: list[str], words: str) -> None:
    done = tuiapp("export", COMPLETED, *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_a_run_without_steps_says_so(tuiapp: Command, runs_dir: Path) -> None:
    record(runs_dir, COMPLETED, [h.started()])
    done = tuiapp("export", "latest")
    assert done.code == 0
    assert "has no steps: the run is lost." in done.err


def test_a_directory_for_tensorboard(tuiapp: Command, recorded: Path, tmp_path: Path) -> None:
    done = tuiapp("export", COMPLETED, "--format", "tensorboard", "-o", tmp_path / "board")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        f"590 rows of metrics: {tmp_path / 'board'}\nto show it: tensorboard --logdir {tmp_path / 'board'}\n"
    )
    assert "rank1" in os.listdir(tmp_path / "board")


def test_deleting_needs_a_terminal_or_yes(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("rm", COMPLETED)
    assert done.code == 2
    assert "--yes" in done.err
    done = tuiapp("rm", "--yes", COMPLETED, FAILED)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"deleted {COMPLETED}\ndeleted {FAILED}\n"
    assert os.listdir(recorded) == [OTHER]


def test_where_one_goes_on_none_is_deleted(tuiapp: Command, recorded: Path) -> None:
    lock = RunDir(recorded / FAILED).take_lock()
    done = tuiapp("rm", "--yes", COMPLETED, FAILED)
    os.close(lock)
    assert done.code == 2
    assert f"{FAILED} is running. Stop it first" in done.err
    assert (recorded / COMPLETED).exists()


def test_verbs_take_groups_and_filters(tuiapp: Command, recorded: Path, tmp_path: Path) -> None:
    assert len(tuiapp("note", "backend:torch-ddp", "--group", "rates").err.splitlines()) == 2
    for one_alone in (["--name", "x"], []):
        assert "are for one run, and these are 2" in tuiapp("note", "rates", *one_alone).err
    assert "2 runs are not written to stdout: give -o DIR." in tuiapp("export", "rates").err
    done = tuiapp("export", "rates", "-o", tmp_path)
    assert done.err == f"{580 + 144} rows of steps: 2 runs in {tmp_path}\n"
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == [f"{run}-steps.csv" for run in (FAILED, COMPLETED)]
    assert [run["run"] for run in json.loads(tuiapp("compare", "rates", "--json").out)["runs"]] == [COMPLETED, FAILED]
    assert tuiapp("stop", "rates").err == "tuiapp: None of these 2 runs is running.\n"
    assert tuiapp("rm", "-y", "group:rates", "state:failed").err == f"deleted {FAILED}\n"
    assert sorted(os.listdir(recorded)) == [OTHER, COMPLETED]


def test_a_run_like_another(tuiapp: Command, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    def launch(config: object, *_: object) -> RunDir:
        launched.append(config)
        return RunDir(recorded / COMPLETED)

    monkeypatch.setattr("tuiapp.verbs.run.launch", launch)
    done = tuiapp("run", "--like", FAILED, "--set", "epochs=3", "--detach")
    assert (done.code, done.err) == (0, "")
    assert launched == [msgspec.structs.replace(CONFIG, learning_rate=0.01, epochs=3)]
    for arguments in (["quickstart", "--like", FAILED], ["--like", FAILED, "--resume", FAILED]):
        done = tuiapp("run", *arguments)
        assert done.code == 2
        assert "omit" in done.err
    (recorded / FAILED / "run.toml").unlink()
    assert "cannot be used for a new run: cannot read" in tuiapp("run", "--like", FAILED).err


def test_a_complete_run_is_not_offered_to_be_resumed(tuiapp: Command, recorded: Path) -> None:
    record_checkpoint(RunDir(recorded / COMPLETED), 150)
    assert json.loads(tuiapp("show", COMPLETED, "--json").out)["resume"] is None
    record_checkpoint(RunDir(recorded / FAILED), 58)
    assert json.loads(tuiapp("show", FAILED, "--json").out)["resume"] == f"tuiapp run --resume {FAILED}"


def test_a_replay_needs_a_terminal_and_a_speed(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("replay", COMPLETED, "--speed", "8x")
    assert (done.code, done.out) == (2, "")
    assert "needs a terminal" in done.err
    for speed in ("0", "-1", "nan", "fast", "2000", "٤", "1_0"):
        assert "is not a speed" in tuiapp("replay", COMPLETED, f"--speed={speed}").err


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


def test_no_fifo_is_waited_for(tuiapp: Command, runs_dir: Path) -> None:
    run = record(runs_dir, COMPLETED, [])
    run.journal.unlink()
    os.mkfifo(run.journal)
    assert tuiapp("export", "latest").code == 2
    assert "unreadable" in tuiapp("runs").out


def test_an_export_may_be_read_by_its_owner_only_as_the_umask_says(
    tuiapp: Command, recorded: Path, tmp_path: Path
) -> None:
    mask = os.umask(0o077)
    try:
        tuiapp("export", COMPLETED, "-o", tmp_path / "x.csv")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "x.csv").stat().st_mode) == 0o600
