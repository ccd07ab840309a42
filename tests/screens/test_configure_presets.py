"""Configure, driven by keys: presets."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static

from tests.kit.configure_app import Start, field, screen, type_into, until, words
from tuiapp.library.presets import load_config, presets_dir, save_preset
from tuiapp.screens.dialog import Choice
from tuiapp.screens.preset_dialogs import SavePreset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.view.draft import study_of
from tuiapp.widgets.preset_list import PresetList


async def test_preset_fills_form_and_command(start: Start) -> None:
    async with start() as pilot:
        assert screen(pilot).command == "tuiapp run"
        await pilot.press("ctrl+l", "down", "down", "enter")
        await pilot.pause()
        assert screen(pilot).command == "tuiapp run mlp"
        assert field(pilot, "model").text == "mlp"
        await type_into(pilot, "epochs", "3")
        await type_into(pilot, "learning_rate", "1e-2")
        assert screen(pilot).command == "tuiapp run mlp --set learning_rate=0.01 --set epochs=3"
        assert field(pilot, "epochs").changed
        assert not field(pilot, "seed").changed


@pytest.mark.nightly
async def test_undo_brings_back_what_a_load_dropped(start: Start) -> None:
    async with start() as pilot:
        await type_into(pilot, "epochs", "7")
        await pilot.press("ctrl+l", "down", "down", "enter")
        await pilot.pause()
        assert field(pilot, "epochs").text == "20"
        await pilot.press("ctrl+z")
        await pilot.pause()
        assert screen(pilot).command == "tuiapp run --set epochs=7"


@pytest.mark.nightly
async def test_overwriting_is_asked(start: Start) -> None:
    save_preset("mine", RunConfig(epochs=9), "nine of them")
    async with start() as pilot:
        for answer, epochs in ((("enter",), 9), (("right", "enter"), 2)):
            await type_into(pilot, "epochs", "2")
            await pilot.press("ctrl+s")
            await until(pilot, lambda: isinstance(pilot.app.screen, SavePreset))
            await pilot.press("end", "ctrl+u", *"mine", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, Choice))
            await pilot.press(*answer)
            await until(pilot, lambda: not isinstance(pilot.app.screen, Choice))
            if isinstance(pilot.app.screen, SavePreset):
                await pilot.press("escape")
            await until(pilot, lambda: pilot.app.screen is screen(pilot))
            await pilot.app.workers.wait_for_complete()
            assert load_config("mine").epochs == epochs


@pytest.mark.nightly
async def test_deleting_is_asked(start: Start) -> None:
    path = save_preset("mine", RunConfig(epochs=9))
    async with start(preset="mine") as pilot:
        assert screen(pilot).query_one(PresetList).cursor is not None
        for answer, left in ((("enter",), True), (("escape",), True), (("right", "enter"), False)):
            await pilot.press("ctrl+l", "delete")
            await until(pilot, lambda: isinstance(pilot.app.screen, Choice))
            await pilot.press(*answer)
            await pilot.app.workers.wait_for_complete()
            assert path.exists() is left
        # What was typed stays; only what it is compared with is gone.
        assert screen(pilot).command == "tuiapp run --set epochs=9"


@pytest.mark.nightly
async def test_a_preset_is_renamed_and_described(start: Start) -> None:
    save_preset("mine", RunConfig(epochs=9), "old words")
    save_preset("taken", RunConfig())
    async with start(preset="mine") as pilot:
        await pilot.press("ctrl+l", "i")
        await until(pilot, lambda: isinstance(pilot.app.screen, SavePreset))
        assert "keeps its name" in str(pilot.app.screen.query_one("#verdict", Static).content)
        await pilot.press("end", "ctrl+u", *"taken")
        assert "already" in str(pilot.app.screen.query_one("#verdict", Static).content)
        await pilot.press("ctrl+u", *"ours", "tab", "end", "ctrl+u", *"new", "enter")
        await until(pilot, lambda: screen(pilot).command == "tuiapp run ours")
        assert load_config("ours").epochs == 9
        assert "new" in str(screen(pilot).query_one(PresetList).get_option("own/ours").prompt)
        assert not (presets_dir() / "mine.toml").exists()


@pytest.mark.nightly
async def test_a_built_in_preset_is_duplicated_but_not_renamed(start: Start) -> None:
    async with start(preset="quickstart") as pilot:
        await pilot.press("ctrl+l", "i")
        await pilot.pause()
        assert not isinstance(pilot.app.screen, SavePreset)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(pilot.app.screen, SavePreset))
        await pilot.press("enter")
        await until(pilot, lambda: (presets_dir() / "quickstart-copy.toml").exists())
        assert load_config("quickstart-copy") == load_config("quickstart")
        # The form stays with what it came from.
        assert screen(pilot).command == "tuiapp run quickstart"


@pytest.mark.nightly
async def test_the_cursor_is_on_what_was_saved_duplicated_or_renamed_and_stays_in_its_place(start: Start) -> None:
    for name in ("a", "b", "c"):
        save_preset(name, RunConfig())

    async with start() as pilot:
        presets = screen(pilot).query_one(PresetList)

        async def name_it(opens: str, *keys: str) -> None:
            await pilot.press(opens)
            await until(pilot, lambda: isinstance(pilot.app.screen, SavePreset))
            await pilot.press("end", "ctrl+u", *keys, "enter")
            await until(pilot, lambda: pilot.app.screen is screen(pilot))

        def is_on(name: str) -> bool:
            return presets.cursor is not None and presets.cursor.name == name

        await name_it("ctrl+s", "b", "2")
        await until(pilot, lambda: is_on("b2"))
        await pilot.press("ctrl+l")
        await name_it("D", "b", "3")
        await until(pilot, lambda: is_on("b3"))
        await name_it("i", "b", "4")
        await until(pilot, lambda: is_on("b4"))
        await pilot.press("delete")
        await until(pilot, lambda: isinstance(pilot.app.screen, Choice))
        await pilot.press("right", "enter")
        await until(pilot, lambda: not (presets_dir() / "b4.toml").exists() and is_on("c"))

        # A crash is raised at the end.


async def test_the_first_preset_is_a_script_of_ones_own(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    # Every key typed examines the form.
    monkeypatch.chdir(tmp_path)
    async with start() as pilot:
        await pilot.press("ctrl+l", "home", "enter")
        await until(pilot, lambda: field(pilot, "script").has_focus_within)
        await type_into(pilot, "script", "train.py")
        await type_into(pilot, "values", "lr=0.1,0.2")
        assert screen(pilot).command == "tuiapp sweep train.py --grid lr=0.1,0.2"
        assert "no argument has {lr}" in words(pilot, "#facts")
        await type_into(pilot, "arguments", "{lr}")
        assert "no argument" not in words(pilot, "#facts")
        # It is no file that could be copied.
        await pilot.press("ctrl+l", "D")
        await pilot.pause()
        assert not isinstance(pilot.app.screen, SavePreset)
        # Whatever preset was loaded before.
        assert study_of(screen(pilot)._draft, "gpt").name == "train-"
