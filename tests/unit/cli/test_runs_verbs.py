"""`tuiapp runs`, `show` and `stop`, on recorded run directories."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.kit import histories, interrupted
from tests.kit.command_line import Command
from tests.kit.recorded import CONFIG, record
from tuiapp.trainers.config.files import bytes_below
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.rundir import RunDir

COMPLETED, FAILED, LOST, DAMAGED, EMPTY = (
    "20261120T101500-torch-ddp-net-3fa1",
    "20261120T101400-torch-ddp-net-3fa2",
    "20261120T101300-torch-ddp-net-3fa3",
    "20261120T101200-torch-ddp-net-3fa4",
    "20261120T101100-torch-ddp-net-3fa5",
)
ALL = [COMPLETED, FAILED, LOST, DAMAGED, EMPTY]


@pytest.fixture
def recorded(runs_dir: Path) -> Path:
    record(runs_dir, COMPLETED, histories.completed())
    record(runs_dir, FAILED, interrupted.failed())
    lost = record(runs_dir, LOST, histories.running(last_step=72))
    with lost.journal.open("ab") as file:
        file.write(b'{"type":"run-end')
    damaged = record(runs_dir, DAMAGED, histories.running(last_step=72))
    damaged.config.write_bytes(b"\x1b]52;c;aGk=\x07 = \xff")
    damaged.journal.write_bytes(b"\x00\xff\x1b[31m\n" * 1000)
    (runs_dir / EMPTY).mkdir()
    return runs_dir


def test_one_line_a_run(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("runs")
    assert (done.code, done.err) == (0, "")
    header, *rows = done.out.splitlines()
    assert header.split() == [
        *(
            "RUN",
            "STATE",
            "BACKEND",
            "MODEL",
            "DATASET",
            "DEVICES",
            "STEPS",
            "LOSS",
            "BEST",
            "BEST",
            "LOSS",
            "EXAMPLES/S",
            "TOOK",
            "STARTED",
        )
    ]
    assert [row.replace("2 CPU", "2").split()[:7] for row in rows] == [
        [COMPLETED, "completed", "torch-ddp", "net", "digits", "2", "290"],
        [FAILED, "failed", "torch-ddp", "net", "digits", "2", "72"],
        [LOST, "lost", "torch-ddp", "net", "digits", "2", "72"],
        [DAMAGED, "lost", "–", "–", "–", "–", "0"],
        [EMPTY, "lost", "–", "–", "–", "–", "0"],
    ]
    assert all(row.isprintable() for row in rows)


def test_sorted_and_chosen_by_keys_and_results(tuiapp: Command, recorded: Path) -> None:
    for run, rate in ((COMPLETED, "0.1"), (FAILED, "0.3"), (LOST, "0.01")):
        config = recorded / run / "run.toml"
        config.write_text(config.read_text().replace("learning_rate = 0.001", f"learning_rate = {rate}"))
        assert f"learning_rate = {rate}" in config.read_text()

    def listed(*words: str) -> list[str]:
        done = tuiapp("runs", *words)
        assert (done.code, done.err) == (0, "")
        return [line.split()[0] for line in done.out.splitlines()[1:]]

    assert listed("--sort", "lr") == [LOST, COMPLETED, FAILED, DAMAGED, EMPTY]
    assert "LR" in tuiapp("runs", "--sort", "lr").out.splitlines()[0].split()
    assert listed("lr>=0.1", "--sort", "learning_rate", "--reverse") == [FAILED, COMPLETED]
    assert listed("lr>0.05", "state:completed") == listed("steps=290") == [COMPLETED]
    assert listed("epoch_time>1", "--sort", "epoch_time", "--columns", "run,epoch_time") == [COMPLETED, FAILED, LOST]
    assert "None of 5 runs" in tuiapp("runs", "epoch_time<1.4").err
    assert listed("--sort", "best")[0] == COMPLETED
    done = tuiapp("runs", "lerning_rate<1")
    assert (done.code, done.out) == (2, "")
    assert "no run has 'lerning_rate'. Did you mean 'learning_rate'?" in done.err


def test_columns_that_are_asked_for(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("runs", "completed", "--columns", "state,lr,best loss,test/accuracy,environment")
    assert (done.code, done.err) == (0, "")
    header, row = done.out.splitlines()
    assert header.split() == ["STATE", "LR", "BEST", "LOSS", "TEST/ACCURACY", "ENVIRONMENT"]
    assert row.split()[:2] == ["completed", "0.001"]
    (facts,) = json.loads(tuiapp("runs", "completed", "--columns", "lr,steps", "--json").out)
    assert facts["values"] == {"lr": 0.001, "steps": 290}
    (facts,) = json.loads(tuiapp("runs", "completed", "--columns", "config.lr,metric.loss", "--json").out)
    assert facts["values"] == {"config.lr": 0.001, "metric.loss": facts["loss"]}
    for asked in (["--columns", "run,disk", "--json"], ["--sort", "disk", "--columns", "run,disk", "--json"]):
        sizes = {facts["run"]: facts["values"]["disk"] for facts in json.loads(tuiapp("runs", *asked).out)}
        assert sizes[COMPLETED] == bytes_below(recorded / COMPLETED)
    assert "DISK" not in tuiapp("runs").out
    done = tuiapp("runs", "--columns", "lr,tset/accuracy")
    assert (done.code, done.out) == (2, "")
    assert "no column 'tset/accuracy': no run has 'tset/accuracy'. Did you mean 'test/accuracy'?" in done.err


def test_groups_are_lines_and_columns(tuiapp: Command, recorded: Path) -> None:
    for run, key, value in ((FAILED, "seed = 0", "seed = 1"), (LOST, "learning_rate = 0.001", "learning_rate = 0.5")):
        config = recorded / run / "run.toml"
        assert key in config.read_text()
        config.write_text(config.read_text().replace(key, value))
    done = tuiapp("runs", "--fold", "--columns", "run,state,seed,test/accuracy")
    rows = done.out.splitlines()[1:]
    assert rows[0].split("  ")[0] == f"{COMPLETED} +1"
    assert " 1 completed, 1 failed " in rows[0]
    assert " 0–1 " in rows[0]
    assert len(rows) == 4
    first = json.loads(tuiapp("runs", "--fold", "--json").out)[0]
    assert (first["runs"], first["states"]) == ([COMPLETED, FAILED], {"completed": 1, "failed": 1})
    assert first["results"]["test/accuracy"]["n"] == 1
    against = tuiapp("runs", "--columns", "run,best", "--baseline", COMPLETED).out.splitlines()
    assert [line.split()[1][0] for line in against[1:]] == ["9", "−", "−", "–", "–"]
    assert tuiapp("runs", "--baseline", "nobody").code == 2

    for run in (COMPLETED, FAILED):
        assert tuiapp("note", run, "--group", "pair").code == 0
    done = tuiapp("compare", LOST, "--group", "pair")
    assert done.err == "tuiapp: pair: the results are those of the 1 completed run.\n"
    # Equal to one that is lost, but completed.
    assert "b  pair · 2 runs · ★ highest test/accuracy" in done.out.splitlines()
    assert re.search(r"^seed +0 +0–1$", done.out, re.MULTILINE)
    facts = json.loads(tuiapp("compare", LOST, "--group", "pair", "--json").out)
    assert facts["differing"]["seed"] == [0, [0, 1]]
    assert (facts["groups"][0]["group"], len(facts["runs"])) == ("pair", 1)
    done = tuiapp("compare", "--group", "pair", "piar")
    assert (done.code, done.out) == (2, "")
    assert "no run has the group 'piar'. Did you mean 'pair'?" in done.err


def test_the_list_as_json(tuiapp: Command, recorded: Path) -> None:
    facts = json.loads(tuiapp("runs", "--json").out)
    assert [run["run"] for run in facts] == ALL
    started = facts[0].pop("started")
    assert started == histories.START
    assert [facts[0].pop(name) for name in ("host", "slurm_job", "node", "nodes")] == ["gpubox", None, None, None]
    assert facts[0].pop("journal_bytes") == (recorded / COMPLETED / "events.jsonl").stat().st_size
    assert facts[0] == {
        "run": COMPLETED,
        "name": None,
        "tags": [],
        "group": "",
        "note": None,
        "script": None,
        "directory": str(recorded / COMPLETED),
        "status": "completed",
        "steps": 290,
        "epochs": 10.0,
        "examples_per_second": 960.0,
        "loss": pytest.approx(0.09120, abs=1e-5),
        "test_loss": pytest.approx(0.15393, abs=1e-5),
        "test_accuracy": pytest.approx(0.99885, abs=1e-5),
        "seconds": 17.5,
        "epoch_seconds": pytest.approx(1.45),
        "best_loss": pytest.approx(0.13656, abs=1e-5),
        "best_accuracy": pytest.approx(0.99885, abs=1e-5),
        "backend": "torch-ddp",
        "model": "net",
        "dataset": "digits",
        "platform": "cpu",
        "devices": 2,
        "reason": "",
        "blemishes": [],
        "problem": "",
    }
    assert [run["status"] for run in facts] == ["completed", "failed", "lost", "lost", "lost"]


def test_no_runs(tuiapp: Command, runs_dir: Path) -> None:
    assert json.loads(tuiapp("runs", "--json").out) == []
    done = tuiapp("runs")
    assert (done.code, done.out) == (0, "")
    assert "tuiapp run quickstart" in done.err


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_place_that_cannot_be_listed(tuiapp: Command, tmp_path: Path, option: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    done = tuiapp("runs", "--runs-dir", tmp_path / "file", *option)
    assert (done.code, done.out) == (2, "")
    assert "file: Not a directory.\ntuiapp: Choose another directory with --runs-dir" in done.err


@pytest.mark.parametrize("before", [True, False])
def test_another_directory_is_given_before_the_verb_or_after_it(tuiapp: Command, tmp_path: Path, before: bool) -> None:
    record(tmp_path / "other", COMPLETED, histories.completed())
    option = ["--runs-dir", tmp_path / "other"]
    done = tuiapp(*option, "runs", "--json") if before else tuiapp("runs", "--json", *option)
    assert [run["run"] for run in json.loads(done.out)] == [COMPLETED]


def test_show_a_completed_run(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("show", "latest")
    lines = {line.split()[0]: line.split(None, 1)[-1] for line in done.out.splitlines() if line}
    assert (done.code, done.err) == (0, "")
    assert lines["run"] == COMPLETED
    assert lines["state"] == "completed"
    assert lines["accuracy"] == "99.9 %"
    assert lines["devices"] == "2"
    assert lines["learning_rate"] == "0.001"
    facts = json.loads(tuiapp("show", COMPLETED, "--json").out)
    assert facts["config"] == to_toml_values(CONFIG)
    assert facts["actual_learning_rate"] == 0.001
    assert facts["traceback"] is None


def test_show_a_failed_run_with_the_traceback_of_its_first_failure(tuiapp: Command, recorded: Path) -> None:
    done = tuiapp("show", FAILED)
    assert done.code == 0
    assert interrupted.TRACEBACK in done.out
    assert "Connection closed by peer" not in done.out
    facts = json.loads(tuiapp("show", FAILED, "--json").out)
    assert (facts["status"], facts["reason"]) == ("failed", "rank 1 failed")
    assert facts["traceback"] == interrupted.TRACEBACK


def test_a_run_by_its_directory(tuiapp: Command, recorded: Path) -> None:
    assert tuiapp("show", recorded / FAILED).out == tuiapp("show", FAILED).out


@pytest.mark.parametrize("verb", ["show", "stop", "attach"])
def test_a_run_that_is_not_there(tuiapp: Command, recorded: Path, verb: str) -> None:
    for name, words in {
        "20261120T1015x": "There is no run '20261120T1015x'",
        "2026": "matches 5 runs",
        "/nowhere/at/all": "/nowhere/at/all is not a run directory",
    }.items():
        done = tuiapp(verb, name)
        assert (done.code, done.out) == (2, "")
        assert words in done.err


@pytest.mark.parametrize(("run_id", "status"), [(COMPLETED, "completed"), (LOST, "lost"), (EMPTY, "lost")])
def test_only_a_run_that_goes_on_can_be_stopped(tuiapp: Command, recorded: Path, run_id: str, status: str) -> None:
    done = tuiapp("stop", run_id)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"tuiapp: {run_id} is not running: {status}.\n"
    commands = RunDir(recorded / run_id).commands
    assert not commands.exists() or os.listdir(commands) == []
