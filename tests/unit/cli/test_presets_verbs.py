"""`tuiapp presets`, and `init_from`: a run's name becomes its directory, in presets, sweeps and the queue."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.kit import histories
from tests.kit.command_line import Command, Done, as_process
from tests.kit.recorded import CONFIG, record, record_checkpoint
from tuiapp.library.presets import load_config, presets_dir
from tuiapp.trainers.config.run_config import SCHEMA, RunConfig, parse_toml, to_toml_values
from tuiapp.trainers.contract.events import InitialWeights
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, find_waiting, write_about
from tuiapp.trainers.state.status import read_config


@pytest.fixture
def directory(home: Path) -> Path:
    return presets_dir()


def test_save_show_rename_delete(tuiapp: Command, directory: Path) -> None:
    settings = ["--set", "epochs=7", "--set", "device_ids=0,1", "--set", "learning_rate=1e-4"]
    done = tuiapp("presets", "save", "mine", "mlp", *settings, "--description", "for me")
    assert done == Done(0, "", f"saved {directory / 'mine.toml'}\n")
    expected = RunConfig(model="mlp", epochs=7, device_ids=("0", "1"), learning_rate=1e-4)
    assert load_config("mine") == expected

    shown = tuiapp("presets", "show", "mine")
    assert (shown.code, shown.err) == (0, "")
    assert parse_toml(shown.out, "stdout")[0] == expected
    assert shown.out.startswith(f"schema = {SCHEMA}\n")

    assert tuiapp("presets", "rename", "mine", "yours") == Done(0, "", f"renamed to {directory / 'yours.toml'}\n")
    assert load_config("yours") == expected
    assert tuiapp("presets", "delete", "yours") == Done(0, "", "deleted yours\n")
    assert list(directory.iterdir()) == []


def test_what_is_shown_can_be_run(tuiapp: Command, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(tuiapp("presets", "show", "quickstart").out)
    assert tuiapp("presets", "save", "mine", tmp_path / "x.toml").code == 0
    assert load_config("mine") == load_config("quickstart")


def test_the_list(tuiapp: Command, directory: Path) -> None:
    tuiapp("presets", "save", "mine", "--description", "for me")
    (directory / "broken.toml").write_text("epochs = 0")
    (directory / "\udcff\x1b[31m.toml").write_text("epochs = 1")
    listed = tuiapp("presets", "list")
    assert listed.code == 0
    assert tuiapp("presets") == listed
    lines = listed.out.splitlines()
    # Yours come first.
    built_in = [line.startswith("quickstart") for line in lines].index(True)
    assert lines[built_in].split() == ["quickstart", "built", "in", *lines[built_in].split()[3:]]
    assert built_in == 3
    assert any(line.split() == ["mine", "yours", "for", "me"] for line in lines)
    assert any("! broken" in line and "0 is not allowed" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    listed.out.encode()


def test_the_list_as_json(tuiapp: Command, directory: Path) -> None:
    tuiapp("presets", "save", "mine", "--description", "for me")
    (directory / "broken.toml").write_text("epochs = 0")
    facts = {preset["name"]: preset for preset in json.loads(tuiapp("presets", "list", "--json").out)}
    assert facts["mine"] == {
        "name": "mine",
        "builtin": False,
        "path": str(directory / "mine.toml"),
        "description": "for me",
        "error": None,
        "config": to_toml_values(RunConfig()),
    }
    assert facts["quickstart"]["builtin"] is True
    assert list(facts["quickstart"]["config"]) == list(to_toml_values(RunConfig()))
    assert "epochs: 0 is not allowed" in facts["broken"]["error"]
    assert facts["broken"]["config"] is None


def test_where_they_lie(tuiapp: Command, directory: Path) -> None:
    assert tuiapp("presets", "path") == Done(0, f"{directory}\n", "")
    assert not directory.exists()


def test_the_user_s_home_is_where_the_environment_says(home: Path) -> None:
    done = as_process("presets", "path")
    assert done == Done(0, f"{home / 'config' / 'tuiapp' / 'presets'}\n", "")


def _source(runs_dir: Path, *steps: int, name: str = "", number: int = 1) -> RunDir:
    run = record(runs_dir, f"20261120T00000{number}-torch-ddp-net-0123", histories.completed(), CONFIG)
    for step in steps:
        record_checkpoint(run, step)
    if name:
        write_about(run, About(name=name))
    return run


def test_a_preset_has_the_runs_directory_and_a_queued_run_its_checkpoint(tuiapp: Command, runs_dir: Path) -> None:
    run = _source(runs_dir, 29, 58, name="first")
    assert tuiapp("presets", "save", "tuned", "--set", "init_from=first", "--set", "freeze=conv*, bn*").code == 0
    saved = load_config("tuned")
    assert (saved.init_from, saved.freeze) == (str(run.path), "conv*, bn*")
    done = tuiapp("queue", "add", "tuned", "--set", "platform=cpu", "--hold")
    assert done.code == 0, done.err
    (waiting,) = find_waiting(runs_dir)
    assert read_config(waiting.run).init_from == str(run.checkpoints / "step-00000058" / "model.safetensors")


def test_a_sweep_goes_through_runs_and_patterns(tuiapp: Command, runs_dir: Path) -> None:
    runs = [_source(runs_dir, 29, number=number) for number in (1, 2)]
    words = ["--grid", f"init_from={runs[0].run_id},{runs[1].path}", "--grid", "freeze=conv*,conv* bn*"]
    done = tuiapp("sweep", *words, "--set", "platform=cpu", "--hold")
    assert done.code == 0, done.err
    configs = [read_config(one.run) for one in find_waiting(runs_dir)]
    files = [str(run.checkpoints / "step-00000029" / "model.safetensors") for run in runs]
    assert [(one.init_from, one.freeze) for one in configs] == [
        (file, freeze) for file in files for freeze in ("conv*", "conv* bn*")
    ]


def test_what_is_not_there_is_refused_before_anything_starts(tuiapp: Command, runs_dir: Path) -> None:
    run = _source(runs_dir)
    for value, says in {
        "nobody": "There is no run 'nobody'",
        "/no/x.safetensors": "init_from: '/no/x.safetensors' is no run, no run's directory, and no",
        run.run_id: f"init_from: {run.run_id} has no checkpoint yet",
    }.items():
        for verb in (["run"], ["queue", "add"], ["sweep", "--grid", "seed=1,2"]):
            done = tuiapp(*verb, "--set", "platform=cpu", "--set", f"init_from={value}")
            assert done.code == 2
            assert says in done.err
    assert [path.name for path in runs_dir.iterdir() if path.is_dir()] == [run.run_id]
    done = tuiapp("run", "--set", "backend=script", "--set", "freeze=conv*")
    assert (done.code, "freeze: conv* would have no effect with backend script" in done.err) == (2, True)


def test_show_says_what_the_run_began_with_after_a_resume_too(tuiapp: Command, runs_dir: Path) -> None:
    source = f"{runs_dir}/20261119T000000-torch-ddp-net-abcd/checkpoints/step-00000058/model.safetensors"
    began = InitialWeights(
        source=source, arrays=8, matched=6, reshaped=["fc2.bias [10], here [5]"], frozen=1234, parameters=5678,
        **histories.at(0.5),
    )  # fmt: skip
    events = histories.completed()
    again = msgspec.structs.replace(histories.started(), attempt=2, resumed_from=58, **histories.at(60))
    run = record(runs_dir, "20261120T000001-torch-ddp-net-0123", [*events[:1], began, *events[1:], again])
    said = (
        "6 of 8 arrays from 20261119T000000-torch-ddp-net-abcd step-00000058 · of another shape: fc2.bias [10], "
        "here [5] · frozen: 1,234 of 5,678 parameters"
    )
    assert f"began with  {said}\n" in tuiapp("show", run.run_id).out
    assert '"frozen": 1234' in tuiapp("show", run.run_id, "--json").out
