"""`tuiapp sweep` and `tuiapp study`, without a process: what is queued is held."""

from __future__ import annotations

import json
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import histories
from tests.kit.command_line import Command, as_process
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.script import command as run_command
from tuiapp.trainers.config.script import variables
from tuiapp.trainers.config.script_syntax import IN_ARGUMENTS
from tuiapp.trainers.contract.events import Figures, Metrics, RunEnded, Summary
from tuiapp.trainers.contract.journal import JournalWriter
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import find_waiting, read_about
from tuiapp.trainers.experiments.study import StudyDir, runs_of_group
from tuiapp.trainers.state.status import read_config

GRID = ("--grid", "learning_rate=0.1,0.01", "--grid", "seed=0..2")


@pytest.fixture(autouse=True)
def _machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tuiapp.verbs.sweep", "tuiapp.trainers.experiments.sweep"):
        monkeypatch.setattr(f"{module}.inspect_machine", lambda: machine)


def finish(run: RunDir, accuracy: float) -> None:
    """Have a queued run be completed."""
    run.waits.unlink()
    figures = {"test/accuracy": Figures(accuracy, 0.1, accuracy)}
    summary = Summary(steps=29, test_accuracy=accuracy, best_accuracy=accuracy, metrics=figures)
    writer = JournalWriter(run.journal)
    values: dict[str, list[float | None]] = {"test/accuracy": [accuracy], "test/loss": [0.5]}
    writer.append([histories.started(), Metrics(rank=0, first_step=29, values=values)])
    writer.append([RunEnded(status="completed", reason="29 of 29 steps", summary=summary)])
    writer.close()


def test_a_grid_queues_exactly_the_combinations(tuiapp: Command, runs_dir: Path) -> None:
    done = tuiapp("sweep", "mlp", *GRID, "--set", "epochs=1", "--hold", "--priority", "2", "--retry", "1")
    assert (done.code, done.out) == (0, "mlp-1\n"), done.err
    assert "sweep of 6 runs, queued" in done.err
    queue = find_waiting(runs_dir)
    found = [(config.learning_rate, config.seed) for config in (read_config(one.run) for one in queue)]
    assert found == [(rate, seed) for rate in (0.1, 0.01) for seed in range(3)]
    assert {read_config(one.run).epochs for one in queue} == {1}
    assert read_about(queue[1].run)[0].name == "learning_rate=0.1 seed=1"
    assert {read_about(one.run)[0].group for one in queue} == {"mlp-1"}
    assert {(one.waiting.priority, one.waiting.retry, one.waiting.held) for one in queue} == {(2, 1, True)}
    # The next one has a name of its own.
    assert tuiapp("sweep", "mlp", "--grid", "seed=1,2", "--hold").out == "mlp-2\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name what to go through"),
        (("--grid", "seed=0..1", "--search", "seed=0..1"), "not both"),
        (("--search", "seed=0..9"), "--trials N"),
        (("--grid", "seed=0..1", "--trials", "3"), "--trials is for --search"),
        (("--grid", "seed"), "no values given"),
        (("--grid", "seed=0", "--grid", "seed=1"), "is given twice"),
        (("--grid", "seed=0..1", "--maximize"), "need --metric"),
        (("--search", "seed=0..9", "--trials", "3", "--metric", "accuracy"), "Did you mean 'test/accuracy'?"),
        (("--search", "learning_rate=1e-5..1000", "--trials", "3"), "1000.0 is not allowed"),
        (("--grid", "seed=0..1", "--name", "a/b"), "is no name of a study"),
    ],
)
def test_what_makes_no_sweep(tuiapp: Command, runs_dir: Path, words: tuple[str, ...], says: str) -> None:
    done = tuiapp("sweep", "mlp", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not (runs_dir / "studies").exists() or not list((runs_dir / "studies").iterdir())


def test_without_optuna_the_extra_is_named(tuiapp: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.trainers.experiments.study.find_spec", lambda _: None)
    done = tuiapp("sweep", "mlp", "--search", "seed=0..9", "--trials", "3")
    assert (done.code, "tuiapp[sweep]" in done.err) == (2, True)


def test_a_search_begins_with_its_objective(tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[StudyDir] = []
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", begun.append)
    rate = ("--search", "learning_rate=log:1e-5..1e-1", "--trials", "5")
    assert tuiapp("sweep", "mlp", *rate, "--set", "best=loss").out == "mlp-1\n"
    study = begun[0].read()
    assert (study.metric, study.rises) == ("test/loss", False)
    assert study.search is not None
    assert (study.search.trials, study.search.sampler, study.search.pruner) == (5, "tpe", "median")
    assert study.environment["HOME"]
    assert begun[0].file.stat().st_mode & 0o077 == 0
    # It ends, and is given more.
    begun[0].ended.write_text('{"reason": "5 trials are made", "failed": false}')
    assert "5 trials are made: give mlp-1 more of them by --trials N." in tuiapp("study", "resume", "mlp-1").err
    assert json.loads(tuiapp("study", "resume", "mlp-1", "--trials", "3", "--json").out)["trials"] == 8
    assert not begun[0].ended.exists()


def test_a_script_gets_its_values(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    words = ("--grid", "lr=0.1,1e-3", "--grid", "k=2", "--set", "devices=1", "--hold", "--", "--lr", "{lr}")
    done = tuiapp("sweep", script, *words)
    assert (done.code, done.out) == (0, "train-1\n"), done.err
    assert "no argument has {k}: only tuiapp.init().config and TUIAPP_CONFIG_k tell the script" in done.err
    assert "{lr}" not in done.err
    configs = [read_config(one.run) for one in find_waiting(runs_dir)]
    assert [config.values for config in configs] == ["lr=0.1 k=2", "lr=0.001 k=2"]
    listed = json.loads(tuiapp("study", "show", "train-1", "--json").out)
    assert [trial["values"] for trial in listed["trials"]] == [{"lr": 0.001, "k": 2}, {"lr": 0.1, "k": 2}]
    # What it reports is not known: a search needs to be told.
    done = tuiapp("sweep", script, "--search", "lr=0.1..0.2", "--trials", "2")
    assert (done.code, "name the metric that the script reports" in done.err) == (2, True)


def test_a_dry_run_prints_commands_that_do_the_same(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    words = ("--name", "mine", "--tag", "a", "--set", "devices=1", "--set", "values=k=2")
    passed = ("--", "--lr", "{lr}", "--text", "a b")
    done = tuiapp("sweep", script, "--grid", "lr=0.1,1e-3", "--grid", "seed=0..1", *words, "--dry-run", *passed)
    assert (done.code, runs_dir.exists()) == (0, False), done.err
    commands = [shlex.split(line) for line in done.out.splitlines()]
    assert commands[0][:3] == ["tuiapp", "run", str(script)]
    assert [command[-4:] for command in commands] == [
        ["--lr", rate, "--text", "a b"] for rate in ("0.1", "0.1", "0.001", "0.001")
    ]

    tuiapp("sweep", script, "--grid", "lr=0.1,1e-3", "--grid", "seed=0..1", *words, "--hold", *passed)
    swept = find_waiting(runs_dir)
    for command in commands:
        assert tuiapp("queue", "add", "--hold", *command[2:]).code == 0
    added = find_waiting(runs_dir)[len(swept) :]
    for one, other in zip(swept, added, strict=True):
        assert run_command(read_config(one.run), "python") == run_command(read_config(other.run), "python")
        given, again = (variables(read_config(run.run)) for run in (one, other))
        # What is printed has the values themselves in its arguments.
        assert given.pop(IN_ARGUMENTS) == "lr"
        assert given == again
        about, same = read_about(one.run)[0], read_about(other.run)[0]
        assert (about.name, about.group, about.tags) == (same.name, same.group, same.tags)


def test_what_a_study_came_to(tuiapp: Command, runs_dir: Path, tmp_path: Path) -> None:
    tuiapp("sweep", "mlp", *GRID, "--hold")
    runs = [one.run for one in find_waiting(runs_dir)]
    for run, accuracy in zip(runs[:5], (0.5, 0.6, 0.9, 0.8, 0.7), strict=True):
        finish(run, accuracy)
    facts = json.loads(tuiapp("study", "show", "mlp-1", "--json").out)
    assert (facts["kind"], facts["metric"], facts["maximize"]) == ("grid", "test/accuracy", True)
    assert [trial["objective"] for trial in facts["trials"]] == [0.9, 0.8, 0.7, 0.6, 0.5, None]
    assert facts["trials"][0]["values"] == {"learning_rate": 0.1, "seed": 2}
    assert facts["best"] == runs[2].run_id
    shown = tuiapp("study", "show", "mlp-1").out
    assert "mlp-1 · grid · 5 completed, 1 queued · best by highest test/accuracy" in shown
    assert next(line for line in shown.splitlines() if line.startswith("★")).split()[1:3] == ["90.0", "%"]
    assert "test/accuracy by learning_rate" in shown
    assert tuiapp("study").out.splitlines()[1].split()[:5] == ["mlp-1", "grid", "learning_rate,", "seed", "5/6"]
    rows = tuiapp("study", "export", "mlp-1").out.splitlines()
    assert rows[0] == "run,name,state,objective,steps,seconds,learning_rate,seed"
    assert rows[1].endswith(",completed,0.9,29,0.0,0.1,2")
    assert tuiapp("study", "export", "mlp-1", "-o", tmp_path / "t.json", "--format", "json").code == 0
    assert json.loads((tmp_path / "t.json").read_text())["study"] == "mlp-1"
    assert tuiapp("study", "export", "mlp-1", "-o", tmp_path / "t.json").code == 2
    best = tuiapp("study", "best", "mlp-1", "--save", "good")
    assert best.out == f"{runs[2].run_id}\n"
    assert "seed = 2" in tuiapp("presets", "show", "good").out


def test_a_grid_is_stopped_and_goes_on_with_what_it_lacks(tuiapp: Command, runs_dir: Path) -> None:
    tuiapp("sweep", "mlp", *GRID, "--hold")
    finish(find_waiting(runs_dir)[0].run, 0.5)
    done = tuiapp("study", "stop", "mlp-1", "--json")
    assert json.loads(done.out) == {"study": "mlp-1", "stopped": 5}
    assert find_waiting(runs_dir) == []
    done = tuiapp("study", "resume", "mlp-1", "--hold", "--json")
    assert len(json.loads(done.out)["runs"]) == 5
    names = [read_about(one.run)[0].name for one in find_waiting(runs_dir)]
    assert names == [f"learning_rate={rate} seed={seed}" for rate in (0.1, 0.01) for seed in range(3)][1:]
    assert "every combination" in tuiapp("study", "resume", "mlp-1", "--hold").err
    assert "--trials is for searches" in tuiapp("study", "resume", "mlp-1", "--trials", "3").err


def test_a_group_is_shown_as_a_study(tuiapp: Command, runs_dir: Path) -> None:
    for seed in range(2):
        tuiapp("queue", "add", "mlp", "--group", "mine", "--set", f"seed={seed}", "--hold")
    facts = json.loads(tuiapp("study", "show", "mine", "--json").out)
    assert (facts["kind"], list(facts["keys"])) == ("group", ["seed"])
    done = tuiapp("study", "show", "nothing")
    assert (done.code, done.err) == (2, "tuiapp: There is no study 'nothing'.\n")
    assert tuiapp("study", "resume", "mine").code == 2


def test_studies_of_all_kinds_are_listed_and_damaged_ones_are_in_nobodys_way(tuiapp: Command, runs_dir: Path) -> None:
    tuiapp("sweep", "mlp", *GRID, "--hold")
    for group in ("race", "race", "mine"):
        tuiapp("queue", "add", "mlp", "--group", group, "--hold")
    texts = {"by-devices": '{"kind": "scale"}', "race": '{"kind": "shootout"}', "damaged": "{"}
    for name, text in texts.items():
        (runs_dir / "studies" / name).mkdir()
        (runs_dir / "studies" / name / "study.json").write_text(text)
    listed = [row.split()[:3] for row in tuiapp("study").out.splitlines()[1:]]
    assert listed == [
        ["by-devices", "scale", "devices"], ["damaged", "damaged", "–"], ["mine", "group", "–"],
        ["mlp-1", "grid", "learning_rate,"], ["race", "shootout", "backend"],
    ]  # fmt: skip
    facts = {one["study"]: (one["kind"], one["trials"]) for one in json.loads(tuiapp("study", "list", "--json").out)}
    assert facts.pop("damaged") == ("damaged", 0)
    assert facts == {"by-devices": ("scale", 0), "mine": ("group", 1), "mlp-1": ("grid", 6), "race": ("shootout", 2)}
    done = tuiapp("study", "show", "race")
    assert done.out.startswith("race · shoot-out · 2 queued"), done.out
    assert done.err == "tuiapp: what it measured: tuiapp shootout --show race\n"
    assert "by-devices is no sweep" in tuiapp("study", "resume", "by-devices").err
    assert "cannot be read" in tuiapp("study", "stop", "damaged").err


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["scale", "shootout", ""])
def test_a_study_of_another_kind_and_a_group_are_stopped_as_a_whole(tuiapp: Command, runs_dir: Path, kind: str) -> None:
    for seed in range(3):
        tuiapp("queue", "add", "mlp", "--group", "mine", "--set", f"seed={seed}", "--hold")
    tuiapp("queue", "add", "mlp", "--hold")
    if kind:
        (directory := StudyDir(runs_dir, "mine").path).mkdir(parents=True)
        (directory / "study.json").write_text(f'{{"kind": "{kind}"}}')
    live = find_waiting(runs_dir)[1].run
    live.waits.unlink()
    lock = live.take_lock()
    assert json.loads(tuiapp("study", "stop", "mine", "--json").out) == {"study": "mine", "stopped": 3}
    assert [read_about(one.run)[0].group for one in find_waiting(runs_dir)] == [""]
    assert list(live.commands.iterdir()), "the one that trains is asked to stop"
    assert tuiapp("study", "rm", "mine", "--runs", "--yes").code == 2, "it has not stopped yet"
    os.close(lock)
    assert json.loads(tuiapp("study", "stop", "mine", "--json").out)["stopped"] == 0


def test_a_study_is_deleted_and_its_runs_where_that_is_asked_for(tuiapp: Command, runs_dir: Path) -> None:
    for _ in range(2):
        tuiapp("sweep", "mlp", *GRID, "--hold")
    done = tuiapp("study", "rm", "mlp-1", "--yes")
    assert (done.code, done.out) == (2, "")
    assert "6 runs of mlp-1 wait or train. Stop it first: tuiapp study stop mlp-1" in done.err
    tuiapp("study", "stop", "mlp-1")
    # Tests have no terminal to be asked on.
    assert "--yes" in tuiapp("study", "rm", "mlp-1").err
    done = tuiapp("study", "rm", "mlp-1", "--yes")
    assert (done.code, "deleted mlp-1; its 6 runs stay, as a group" in done.err) == (0, True)
    assert not StudyDir(runs_dir, "mlp-1").path.exists()
    runs = runs_of_group(runs_dir, "mlp-1")
    assert len(runs) == 6
    # What is left is a group: of that only the runs can go.
    assert "add --runs" in tuiapp("study", "rm", "mlp-1", "--yes").err
    facts = json.loads(tuiapp("study", "rm", "mlp-1", "--runs", "--yes", "--json").out)
    assert facts == {"study": "mlp-1", "deleted": True, "runs": [run.run_id for run in runs]}
    assert runs_of_group(runs_dir, "mlp-1") == []
    tuiapp("study", "stop", "mlp-2")
    assert tuiapp("study", "rm", "mlp-2", "--runs", "--yes").code == 0
    assert [path.name for path in runs_dir.iterdir() if path.name != "studies"] == [".queue"]
    assert list((runs_dir / "studies").iterdir()) == []


def test_what_is_no_study_is_not_deleted(tuiapp: Command, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", lambda place: None)
    tuiapp("sweep", "mlp", "--search", "seed=0..9", "--trials", "5")
    assert "The search mlp-1 goes on. Stop it first" in tuiapp("study", "rm", "mlp-1", "--yes").err
    for name in ("nothing", "../studies/mlp-1", "..", ""):
        done = tuiapp("study", "rm", name, "--runs", "--yes")
        assert (done.code, "There is no study" in done.err) == (2, True), done.err
    damaged = StudyDir(runs_dir, "damaged")
    damaged.path.mkdir()
    damaged.file.write_text("{")
    assert tuiapp("study", "rm", "damaged", "--yes").code == 0
    assert [path.name for path in (runs_dir / "studies").iterdir()] == ["mlp-1"]


def test_two_that_resume_a_grid_queue_each_combination_once(tuiapp: Command, runs_dir: Path) -> None:
    tuiapp("sweep", "mlp", *GRID, "--hold")
    tuiapp("study", "stop", "mlp-1")
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: as_process("study", "resume", "mlp-1", "--hold", "--json"), range(2)))
    assert sorted(len(json.loads(one.out)["runs"]) for one in done) == [0, 6]
    assert len(find_waiting(runs_dir)) == 6


def test_what_begins_no_study_leaves_none(tuiapp: Command, runs_dir: Path) -> None:
    assert tuiapp("sweep", "mlp", *GRID, "--hold", "--name", "mine", "--tag", "a" * 40).code == 2
    assert not StudyDir(runs_dir, "mine").path.exists()
    assert tuiapp("sweep", "mlp", *GRID, "--hold", "--name", "mine").code == 0
    done = tuiapp("study", "stop", "mime")
    assert (done.code, done.err) == (2, "tuiapp: There is no study 'mime'. Did you mean 'mine'?\n")
