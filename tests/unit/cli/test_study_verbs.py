"""`tuiapp scale` and `tuiapp shootout`: what is queued, in which order, and the tables of what has run."""

from __future__ import annotations

import csv
import errno
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.command_line import Command
from tests.kit.measured_runs import GROUP, record_study, recorded
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.contract.sidecars import Waiting, find_waiting, read_about
from tuiapp.trainers.experiments import queue
from tuiapp.trainers.experiments.study import Study
from tuiapp.trainers.state.status import read_config


@pytest.fixture
def queued(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are queued, but no keeper starts them, and Ctrl-C is pressed as soon as they are followed."""

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuiapp.trainers.experiments.queue.start_keeper", lambda runs_dir: "")
    for verb in ("scale", "shootout"):
        monkeypatch.setattr(f"tuiapp.verbs.{verb}.inspect_machine", lambda: machine)
    monkeypatch.setattr("tuiapp.verbs.measured_studies.follow", press)


def configs_of(runs_dir: Path) -> list[RunConfig]:
    """Those of the queue, in its order; all run alone."""
    found = find_waiting(runs_dir)
    assert all(one.waiting.exclusive for one in found)
    return [read_config(one.run) for one in found]


@pytest.mark.usefixtures("queued")
def test_the_runs_of_a_scaling_study_take_turns_and_run_alone(tuiapp: Command, runs_dir: Path) -> None:
    done = tuiapp("scale", "mlp", "--devices", "2,1,4", "--repeat", 2, "--steps", 100, "--set", "platform=cpu")
    assert (done.code, done.out) == (130, "")
    assert "6 runs queued as the group scale-mlp-1" in done.err
    assert "tuiapp scale --show scale-mlp-1" in done.err
    configs = configs_of(runs_dir)
    assert [config.devices for config in configs] == [1, 2, 4, 1, 2, 4]
    assert {config.global_batch_size for config in configs} == {48}
    assert {(config.max_steps, config.epochs, config.eval_every, config.checkpoint_every) for config in configs} == {
        (100, 4, 0, 0)
    }
    about, _ = read_about(find_waiting(runs_dir)[1].run)
    assert (about.group, about.note) == ("scale-mlp-1", "strong scaling, 2 devices, global batch 48")
    # A study more has a name of its own.
    assert "scale-mlp-2" in tuiapp("scale", "mlp", "--devices", "1,2", "--repeat", 1).err
    shown = tuiapp("scale", "--show", "scale-mlp-1")
    assert shown.code == 0
    assert "0 of 2" in shown.out


@pytest.mark.usefixtures("queued")
def test_a_shoot_out_has_each_backend_in_turn_on_as_many_devices(tuiapp: Command, runs_dir: Path) -> None:
    names = ["jax-pmap", "torch-ddp"]
    done = tuiapp("shootout", "mlp", "--backends", ",".join(names), "--repeat", 2, "--set", "seed=7")
    assert done.code == 130
    configs = configs_of(runs_dir)
    assert [config.backend for config in configs] == names * 2
    assert {(config.devices, config.seed, config.global_batch_size) for config in configs} == {(2, 7, 48)}


@pytest.mark.usefixtures("queued")
def test_backends_that_cannot_run_it_are_named_with_the_reason(tuiapp: Command, runs_dir: Path) -> None:
    done = tuiapp("shootout", "mlp", "--repeat", 1, "--set", "platform=cpu")
    assert "left out: torch-dp: torch-dp runs on one CPU device only" in done.err
    backends = [config.backend for config in configs_of(runs_dir)]
    assert backends[0] == "torch-ddp"
    assert "torch-dp" not in backends
    assert "left out: torch-dp: torch-dp runs on one CPU" in tuiapp("shootout", "--show", "shootout-mlp-1").out
    named = tuiapp("shootout", "mlp", "--backends", "torch-dp,torch-ddp", "--set", "platform=cpu", "--set", "devices=2")
    assert named.code == 2, "what the user has named is not left out"


@pytest.mark.usefixtures("queued")
def test_a_study_that_cannot_be_queued_whole_is_not_queued(
    tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, waiting = queue.mark_waiting, list[RunDir]()

    def put_two(run: RunDir, place: Waiting) -> None:
        if len(waiting) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        waiting.append(run)
        put(run, place)

    monkeypatch.setattr(queue, "mark_waiting", put_two)
    done = tuiapp("scale", "mlp", "--devices", "1,2", "--name", "mine")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert len(waiting) == 2
    assert not find_run_dirs(runs_dir)
    assert [path.name for path in runs_dir.glob(".*")] == [".queue"], "nothing is left of them"
    assert "There is no study 'mine'" in tuiapp("scale", "--show", "mine").err


@pytest.mark.usefixtures("queued")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scale", "mlp", "--devices", "1,none"], "'none' is not a count"),
        (["scale", "mlp", "--devices", "1,2", "--repeat", "1000000000000"], "use 1 to 999,999,999"),
        (["scale", "mlp", "--devices", "2"], "give several, as --devices 1,2"),
        (["scale", "mlp", "--devices", "1,64"], "64 is more than this machine has"),
        (["scale", "mlp", "--devices", "1,5"], "48 cannot be split evenly over 5 devices"),
        (["scale", "mlp", "--weak", "--strong"], "not allowed with"),
        (["scale", "mlp", "--devices", "1,2", "--set", "devices=2"], "--devices has all of them"),
        (["scale", "mlp", "--name", "../up"], "is no name of a study"),
        (["scale", "--show", "mime"], "Did you mean 'mine'?"),
        (["scale", "mlp", "--show", "mine"], "leave out mlp"),
        (["scale", "mlp", "--devices", "1,2", "--name", "mine"], "There is a study or group 'mine' already"),
        (["scale", "mlp", "--csv", "table.txt"], "must end in .csv"),
        (["scale", "mlp", "--report", "/nowhere/page.html"], "The directory /nowhere does not exist"),
        (["shootout", "mlp", "--backends", "torch-dpp"], "Did you mean 'torch-dp'?"),
        (["shootout", "mlp", "--set", "backend=torch-dp"], "--backends has all of them"),
        (["shootout", "train.py"], "A script has one framework"),
        (["shootout", "--show", "mine"], "no study 'mine' that tuiapp shootout has made"),
    ],
)
def test_arguments_that_are_refused(tuiapp: Command, runs_dir: Path, words: Sequence[str], says: str) -> None:
    if "--name" in words or "--show" in words:
        record_named(runs_dir, "mine")
    done = tuiapp(*words)
    assert done.code == 2
    assert says in " ".join(done.err.split())
    assert not find_waiting(runs_dir)


def record_named(runs_dir: Path, name: str) -> None:
    directory = runs_dir / "studies" / name
    directory.mkdir(parents=True)
    (directory / "study.json").write_text('{"kind": "scale"}')
    # That of another verb, which has a form of its own.
    (runs_dir / "studies" / "other").mkdir()
    (runs_dir / "studies" / "other" / "study.json").write_text('{"kind": "sweep", "weak": "?"}')


@pytest.fixture
def scaled(runs_dir: Path) -> Path:
    for number, (devices, rate) in enumerate([(1, 1000.0), (2, 1800.0), (1, 1100.0), (2, 2000.0)]):
        recorded(runs_dir, number, devices=devices, rate=rate, waited=0.25 if devices > 1 else None)
    recorded(runs_dir, 9, devices=2, status="failed")
    record_study(runs_dir, Study(kind="scale"))
    return runs_dir


@pytest.mark.usefixtures("scaled")
def test_the_table_of_a_scaling_study(tuiapp: Command) -> None:
    done = tuiapp("scale", "--show", GROUP)
    assert done.code == 1, "a run has failed"
    head, one, two = done.out.splitlines()[2:5]
    assert head.split() == [
        "DEVICES", "BATCH", "RUNS", "EXAMPLES/S", "SPREAD", "SPEED-UP", "EFFICIENCY", "WAITING", "DATA", "WAIT",
        "MEMORY",
    ]  # fmt: skip
    assert one.split() == ["1", "48", "2", "1,050", "±", "4.8", "%", "1.00×", "100", "%", "–", "–", "100", "MiB"]
    words = ["2", "48", "2", "of", "3", "1,900", "±", "5.3", "%", "1.81×", "90", "%", "25.0", "%", "–", "201", "MiB"]
    assert two.split() == words
    assert "does not count: ✖ failed, out of memory" in done.out
    assert "median of the runs" in done.out


@pytest.mark.usefixtures("scaled")
def test_a_scaling_study_for_other_programs(tuiapp: Command, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("table.csv", "table.md", "page.html")]
    options = ["--csv", files[0], "--markdown", files[1], "--report", files[2]]
    found = json.loads(tuiapp("scale", "--show", GROUP, "--json", *options).out)
    assert (found["study"], found["kind"], len(found["runs"])) == (GROUP, "scale", 5)
    assert [row["throughput"] for row in found["rows"]] == [1050.0, 1900.0]
    rows = list(csv.DictReader(files[0].open()))
    assert [(row["devices"], row["throughput"]) for row in rows] == [("1", "1050.0"), ("2", "1900.0")]
    assert rows[0]["waiting"] == ""
    assert float(rows[1]["waiting"]) == pytest.approx(0.25)
    assert "| 2 | 48 | 2 of 3 | 1,900 |" in files[1].read_text()
    page = files[2].read_text()
    assert "<h1>Scaling study study (strong)</h1>" in page
    assert page.index("<td>1.81×</td>") < page.index("<title>speed-up</title>") < page.index("<title>loss</title>")
    assert tuiapp("scale", "--show", GROUP, *options).code == 2
    assert tuiapp("scale", "--show", GROUP, *options, "--force").code == 1


def test_the_table_of_a_shoot_out(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    recorded(runs_dir, 1, backend="torch-ddp", devices=2, losses=[1.0] * 40)
    recorded(runs_dir, 2, backend="jax-pmap", devices=2, losses=[1.5] * 40, rate=500.0)
    study = Study(kind="shootout", order=["torch-ddp", "jax-pmap"], left_out={"mxnet-gluon": "not\x1b[31m here"})
    record_study(runs_dir, study)
    done = tuiapp("shootout", "--show", GROUP, "--report", tmp_path / "page.html")
    assert done.code == 0
    torch, jax = done.out.splitlines()[3:5]
    assert torch.split()[:3] == ["torch-ddp", "1", "1,000"]
    assert jax.split() == [
        "jax-pmap", "1", "500", "–", "3.00", "s", "201", "MiB", "0.5000", "0.6000", "90.00", "%", "0.5000",
    ]  # fmt: skip
    assert "left out: mxnet-gluon: not here" in done.out
    assert "net · digits · 2 devices (cpu) · global batch 48 · adam · float32 · seed 0" in done.out
    assert "<title>loss</title>" in (tmp_path / "page.html").read_text()
