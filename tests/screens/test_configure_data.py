"""Configure, driven by keys: a data set of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from tests.kit.configure_app import Launches, Start, field, screen, type_into, words
from tests.kit.npz import make_arrays, write_npz
from tuiapp.widgets.option_field import complete

pytestmark = pytest.mark.nightly


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set in the current directory: every letter of its path is typed."""
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "faces.npz", make_arrays((16, 16, 3), train=130))
    return "npz:faces.npz"


async def open_input(pilot: Pilot[None]) -> Input:
    """Choose the menu's last entry."""
    field(pilot, "dataset").focus_control()
    await pilot.press("enter", "end", "enter")
    await pilot.pause()
    box = field(pilot, "dataset").query_one(Input)
    assert box.has_focus
    return box


async def test_a_path_is_typed_after_the_menus_last_entry(start: Start, launches: Launches, name: str) -> None:
    async with start(size=(120, 40)) as pilot:
        field(pilot, "dataset").focus_control()
        await pilot.press("enter")
        await pilot.pause()
        menu = field(pilot, "dataset").query_one(OptionList)
        assert [option.id for option in menu.options][-1] == "npz:"
        assert "your own" in str(menu.options[-1].prompt)
        await pilot.press("escape")
        box = await open_input(pilot)
        assert (box.value, box.cursor_position) == ("npz:", 4)
        assert "'npz:' is not allowed" in field(pilot, "dataset").problem
        await pilot.press(*name.removeprefix("npz:"))
        await pilot.pause()
        assert field(pilot, "dataset").text == name
        assert field(pilot, "dataset").problem == ""
        assert "2 steps per epoch" in words(pilot, "#facts")
        assert screen(pilot).command == f"tuiapp run --set dataset={name}"
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        assert [config.dataset for config in launches.configs] == [name]


async def test_what_is_wrong_with_a_file_is_said_beside_the_field(start: Start, name: str, tmp_path: Path) -> None:
    async with start(size=(120, 40)) as pilot:
        await open_input(pilot)
        await pilot.press(*"none.npz")
        await pilot.pause()
        assert field(pilot, "dataset").problem == f"{tmp_path}/none.npz cannot be read: No such file or directory."
        assert "— steps per epoch" in words(pilot, "#facts").replace("–", "—")
        # Nothing else that follows from it stands in the way of going on.
        assert screen(pilot).command == "tuiapp run --set dataset=npz:none.npz"
        shutil.copy(tmp_path / "faces.npz", tmp_path / "none.npz")
        await type_into(pilot, "epochs", "3")
        assert field(pilot, "dataset").problem == ""
        (tmp_path / "none.npz").unlink()
        screen(pilot).refresh()
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()


def test_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "more").mkdir(parents=True)
    for file in ("b.npz", "a.txt", ".hidden.npz", "new\nline.npz"):
        (tmp_path / "data" / file).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for typed, found in {
        "": None,
        "~": None,
        "d": "data/",
        "~/d": "~/data/",
        "data/": "data/b.npz",
        "data/m": "data/more/",
        "data/a": None,
        "data/.": "data/.hidden.npz",
        "data/n": None,
        "data/more/": None,
        "none/x": None,
        "\0/x": None,
    }.items():
        assert complete(typed, ".npz") == found, typed


async def test_a_folder_of_images_has_a_size(start: Start, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
    async with start(size=(120, 40)) as pilot:
        assert not field(pilot, "image_size").display
        box = await open_input(pilot)
        box.value = f"folder:{tmp_path}/images/cat"
        await pilot.pause()
        expected = f"{tmp_path}/images/cat has 0 folders; it must have one for each class, two at least."
        assert field(pilot, "dataset").problem == expected
        box.value = f"folder:{tmp_path}/images"
        await pilot.pause()
        assert field(pilot, "dataset").problem == ""
        assert field(pilot, "image_size").display
        # A launch finds out how many there are.
        assert "– steps per epoch" in words(pilot, "#facts")
        await type_into(pilot, "image_size", "32")
        assert screen(pilot).command == f"tuiapp run --set dataset=folder:{tmp_path}/images --set image_size=32"
