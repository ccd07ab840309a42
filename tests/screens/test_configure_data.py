"""Configure, driven by keys: a data set of one's own, and several values in fields, which are a sweep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, OptionList, Static

from tests.kit.configure_app import Launches, Start, field, screen, type_into, until, words
from tests.kit.npz import make_arrays, write_npz
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import find_waiting
from tuiapp.trainers.experiments.study import Study, StudyDir
from tuiapp.trainers.experiments.sweep import begin_grid
from tuiapp.widgets.config_form import ConfigForm
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


def held(study: Study, runs_dir: Path, machine: Machine | None) -> tuple[StudyDir, list[RunDir]]:
    """Queue a sweep that nobody starts."""
    return begin_grid(study, runs_dir, machine, held=True)


async def test_the_form_says_how_many_runs_and_queues_them(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.begin_grid", held)
    async with start(preset="mlp", runs_dir=tmp_path / "runs") as pilot:
        await type_into(pilot, "learning_rate", "0.1, 0.03, 0.01")
        await type_into(pilot, "seed", "0..1")
        await until(pilot, lambda: "6 runs" in words(pilot, "#facts"))
        assert "learning_rate 0.1, 0.03, 0.01 × seed 0, 1" in words(pilot, "#facts")
        assert str(screen(pilot).query_one("#launch", Button).label) == "Sweep of 6 ^r"
        assert field(pilot, "learning_rate").help == "3 values: 0.1, 0.03, 0.01"
        grid = "--grid learning_rate=0.1,0.03,0.01 --grid seed=0..1"
        assert screen(pilot).command == f"tuiapp sweep mlp {grid} --runs-dir {tmp_path}/runs"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "one value" in str([note.message for note in pilot.app._notifications]))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        listed = pilot.app.screen
        await until(pilot, lambda: "6 runs" in str(listed.query_one("#heading", Static).content))
        assert listed.query_one("#filter", Input).value == "group:mlp-1"
        assert len(find_waiting(tmp_path / "runs")) == 6


async def test_a_number_of_trials_makes_it_a_search(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[StudyDir] = []
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", begun.append)
    async with start(preset="mlp", runs_dir=tmp_path / "runs") as pilot:
        await until(pilot, lambda: screen(pilot).is_mounted)
        assert not field(pilot, "trials").display
        # Without a count it is nothing but a search.
        await type_into(pilot, "learning_rate", "1e-5..1e-1")
        await until(pilot, lambda: "in a search it needs none" in field(pilot, "learning_rate").problem)
        await type_into(pilot, "learning_rate", "log 1e-5..1e-1")
        await until(pilot, lambda: "5 runs" in words(pilot, "#facts"))
        await until(pilot, lambda: field(pilot, "trials").display)
        await until(
            pilot, lambda: "set Trials for a search" in str(screen(pilot).query_one(ConfigForm).border_subtitle)
        )
        assert not field(pilot, "prune").display
        await type_into(pilot, "trials", "0")
        await until(pilot, lambda: "at least 1" in field(pilot, "trials").problem)
        await type_into(pilot, "trials", "40")
        by = "40 trials by Optuna: learning_rate log:1e-5..1e-1"
        await until(pilot, lambda: f"{by} · median pruning" in words(pilot, "#facts"))
        assert field(pilot, "learning_rate").help == "drawn from: log:1e-5..1e-1"
        assert str(screen(pilot).query_one("#launch", Button).label) == "Search of 40 ^r"
        await type_into(pilot, "prune", "hyperband")
        await until(pilot, lambda: "hyperband pruning" in words(pilot, "#facts"))
        search = "--search learning_rate=log:1e-5..1e-1 --trials 40 --prune hyperband"
        assert screen(pilot).command == f"tuiapp sweep mlp {search} --runs-dir {tmp_path}/runs"
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        study = begun[0].read()
        assert study.search is not None
        assert (study.search.trials, study.search.pruner, study.metric) == (40, "hyperband", "test/accuracy")
        assert study.axes == {"learning_rate": "log:1e-5..1e-1"}


async def test_a_search_of_a_script_needs_what_its_trials_are_best_by(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[StudyDir] = []
    monkeypatch.setattr("tuiapp.trainers.experiments.sweep.start_search", begun.append)
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    async with start(runs_dir=tmp_path / "runs") as pilot:
        await type_into(pilot, "backend", "script")
        await type_into(pilot, "script", str(script))
        await type_into(pilot, "values", "lr=0.1..0.3 k=3")
        await type_into(pilot, "trials", "4")
        await until(pilot, lambda: "4 trials by Optuna: lr 0.1..0.3" in words(pilot, "#facts"))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "name the metric that the script reports" in field(pilot, "metric").problem)
        await type_into(pilot, "metric", "reward")
        await until(
            pilot, lambda: (screen(pilot).command or "").endswith(f"--metric reward --runs-dir {tmp_path}/runs")
        )
        await pilot.press("ctrl+r")
        await until(pilot, lambda: bool(begun))
        assert (begun[0].read().metric, begun[0].read().rises) == ("reward", True)
