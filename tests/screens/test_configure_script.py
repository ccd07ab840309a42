"""Configure, driven by keys: a script of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from tests.kit.configure_app import Launches, Start, field, screen, type_into, until, words
from tuiapp.library.presets import save_preset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.option_field import complete


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "work"
    (directory / "logs").mkdir(parents=True)
    (directory / "train.py").write_text("pass")
    (directory / "train.txt").write_text("pass")
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.nightly
async def test_a_script_is_typed_completed_and_launched(start: Start, launches: Launches, here: Path) -> None:
    async with start(size=(120, 40)) as pilot:
        await type_into(pilot, "backend", "script")
        assert field(pilot, "script").display
        assert not field(pilot, "model").display
        assert not field(pilot, "global_batch_size").display
        assert not screen(pilot).query_one("#group-optimization").display
        assert field(pilot, "script").query_one(Input).placeholder == "its path, or module:NAME"
        assert "is empty; it must be the path of a Python script" in field(pilot, "script").problem
        await type_into(pilot, "script", "tr")
        assert "there is no file" in field(pilot, "script").problem
        box = field(pilot, "script").query_one(Input)
        await until(pilot, lambda: box._suggestion == "train.py")
        subtitle = str(screen(pilot).query_one(ConfigForm).border_subtitle)
        assert subtitle == "its path, or module:NAME · → completes"
        await pilot.press("right")
        await pilot.pause()
        assert (field(pilot, "script").text, field(pilot, "script").problem) == ("train.py", "")
        await type_into(pilot, "arguments", "--name 'two words'")
        await type_into(pilot, "devices", "2")
        assert screen(pilot).command == "tuiapp run train.py --set devices=2 -- --name 'two words'"
        facts = words(pilot, "#facts")
        assert "2 processes on the CPU" in facts
        assert "python train.py --name 'two words'" in facts
        assert str(here) in facts
        assert "parameters" not in facts
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        assert [(config.script, config.arguments) for config in launches.configs] == [
            ("train.py", "--name 'two words'")
        ]


@pytest.mark.nightly
async def test_a_preset_with_a_script_changes_back(start: Start, here: Path) -> None:
    save_preset("mine", RunConfig(backend="script", script="train.py", arguments="-x"))
    async with start(size=(120, 40), preset="mine") as pilot:
        await until(pilot, lambda: bool(screen(pilot).query("#field-script")))
        assert screen(pilot).command == "tuiapp run mine"
        await type_into(pilot, "arguments", "-y")
        assert screen(pilot).command == "tuiapp run mine -- -y"
        await type_into(pilot, "backend", "torch-ddp")
        assert not field(pilot, "script").display
        assert field(pilot, "model").display
        assert screen(pilot).query_one("#group-optimization").display
        command = screen(pilot).command
        assert command is not None
        assert "-y" not in command


def test_directories_are_completed_without_files(here: Path) -> None:
    assert complete("tr", ".py") == "train.py"
    assert complete("l", "/") == "logs/"
    assert complete("tr", "/") is None
    assert complete("train.t", "") == "train.txt"
