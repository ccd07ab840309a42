"""`tuiapp presets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.command_line import Command, Done, as_process
from tuiapp.library.presets import load_config, presets_dir
from tuiapp.trainers.config.run_config import SCHEMA, RunConfig, parse_toml, to_toml_values


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
