"""Pictures of Configure: the form in all its states, and what is asked over it.

After a wanted change: `pytest tests/screens/snapshots -m "" --snapshot-update`, then look at the diff and at the
pictures (`python -m tests.kit.view FILE…`).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot

from tests.kit import histories as h
from tests.kit.configure_app import screen, type_into
from tests.kit.stage import TWO_CORES, Stage, matrix, press, until
from tests.screens.snapshots.conftest import Before, ComparePicture
from tuiapp.library.presets import presets_dir, save_preset
from tuiapp.screens.dialog import Choice
from tuiapp.screens.keys import Palette
from tuiapp.screens.pickers import ThemeList
from tuiapp.screens.preset_dialogs import SavePreset
from tuiapp.screens.quit import _stray_question
from tuiapp.trainers.config.machine import Gpu, GpuProcess, Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.orphans import _TOKEN_DIGITS, Orphan
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.launch import LaunchError
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.option_field import OptionField


def gpu_box(count: int) -> Machine:
    """A machine with GPUs, of which some are in use."""
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index:04}",
            name="NVIDIA H200",
            memory_total_bytes=139 << 30,
            memory_used_bytes=(index % 3) * 40 << 30,
            utilization_percent=(index % 3) * 45,
            processes=(GpuProcess(pid=700 + index, user="bob", name="python", memory_bytes=39 << 30),) * (index % 3),
        )
        for index in range(count)
    )
    return Machine(
        cpu_cores=64, memory_total_bytes=512 << 30, gpus=gpus, memory_available_bytes=480 << 30, driver="580.12"
    )


def refuse(config: RunConfig, runs_dir: Path, machine: Machine | None, about: About) -> RunDir:
    raise LaunchError("/home/ada/runs: there is no room left on the disk; 12 MiB are free, a run needs 64 MiB.")


def dawdle(config: RunConfig, runs_dir: Path, machine: Machine | None, about: About) -> RunDir:
    """A launch that takes as long as the picture does."""
    released.wait(120)
    raise LaunchError("")


released = threading.Event()


async def ready(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: screen(pilot).is_mounted and len(screen(pilot).query(OptionField)) > 10)
    await pilot.pause()


async def edited(pilot: Pilot[Any]) -> None:
    await type_into(pilot, "epochs", "3")
    await type_into(pilot, "learning_rate", "0.01")


async def wrong_values(pilot: Pilot[Any]) -> None:
    await type_into(pilot, "learning_rate", "fast")
    await type_into(pilot, "global_batch_size", "0")


async def menu(pilot: Pilot[Any]) -> None:
    await press(pilot, ["tab", "down", "enter"])
    await until(pilot, lambda: bool(screen(pilot).query("ChoiceInput OptionList")))


async def own_data(pilot: Pilot[Any]) -> None:
    field = next(one for one in screen(pilot).query(OptionField) if one.option.key == "dataset")
    field.query_one(ChoiceInput).post_message(ChoiceInput.PrefixChosen("npz:"))
    await pilot.pause()
    await press(pilot, "/data/faces.npz")


async def save_name(pilot: Pilot[Any], name: str) -> None:
    await edited(pilot)
    await pilot.press("ctrl+s")
    await until(pilot, lambda: isinstance(pilot.app.screen, SavePreset))
    await press(pilot, ["ctrl+u", *name])


async def save_new(pilot: Pilot[Any]) -> None:
    await save_name(pilot, "three-epochs")


async def save_taken(pilot: Pilot[Any]) -> None:
    await save_name(pilot, "digits-sgd")


async def save_wrong(pilot: Pilot[Any]) -> None:
    await save_name(pilot, "a/b")


async def delete_preset(pilot: Pilot[Any]) -> None:
    await press(pilot, ["home", "delete"])


async def rename_preset(pilot: Pilot[Any]) -> None:
    await press(pilot, ["home", "i"])


async def little_memory(pilot: Pilot[Any]) -> None:
    await type_into(pilot, "model", "resnet18")
    await type_into(pilot, "dataset", "cifar10")
    await type_into(pilot, "global_batch_size", "16384")


async def help_panel(pilot: Pilot[Any]) -> None:
    await pilot.app.run_action("toggle_help")


async def handbook(pilot: Pilot[Any]) -> None:
    await pilot.press("f1")
    await pilot.pause()


async def palette(pilot: Pilot[Any]) -> None:
    await pilot.press("ctrl+p")
    await pilot.pause(0.5)


async def launch(pilot: Pilot[Any]) -> None:
    await pilot.press("ctrl+r")
    await pilot.pause()


async def themes(pilot: Pilot[Any]) -> None:
    pilot.app.search_themes()
    await until(pilot, lambda: isinstance(pilot.app.screen, Palette | ThemeList))
    await pilot.pause(0.5)


async def strays(pilot: Pilot[Any]) -> None:
    left = [
        Orphan(4121 + rank, 1, f"{h.RUN_ID}-{'0' * _TOKEN_DIGITS}", str(rank), "python -m tuiapp.trainers.rank.process")
        for rank in range(2)
    ]
    pilot.app.push_screen(_stray_question(left))
    await until(pilot, lambda: isinstance(pilot.app.screen, Choice))


class Scene(NamedTuple):
    """A machine, and what is done with the form."""

    before: Before = ready
    machine: Machine | None = TWO_CORES
    given: dict[str, Any] = {}  # noqa: RUF012, never changed
    no_color: bool = False
    own_presets: bool = True


SCENES: dict[str, Scene] = {
    "form": Scene(),
    "edited": Scene(edited),
    "wrong-values": Scene(wrong_values),
    "menu": Scene(menu),
    "own-data": Scene(own_data),
    "no-presets-of-ones-own": Scene(own_presets=False),
    "unknown-machine": Scene(machine=None),
    "gpus-2": Scene(machine=gpu_box(2)),
    "gpus-8": Scene(machine=gpu_box(8), given={"config": RunConfig(device_ids=("GPU-0001", "GPU-0004"))}),
    "launching": Scene(launch, given={"launcher": dawdle}),
    "launch-failed": Scene(launch, given={"launcher": refuse}),
    "save-new": Scene(save_new),
    "save-taken": Scene(save_taken),
    "save-wrong": Scene(save_wrong),
    "delete-preset": Scene(delete_preset),
    "rename-preset": Scene(rename_preset),
    "little-memory": Scene(little_memory),
    "help": Scene(help_panel),
    "handbook": Scene(handbook),
    "palette": Scene(palette),
    "themes": Scene(themes),
    "strays-question": Scene(strays),
    "unicode-off": Scene(edited, given={"unicode": "off"}),
    "no-color": Scene(wrong_values, no_color=True),
}


SMALL_TOO = (
    "form",
    "gpus-8",
    "help",
    "launch-failed",
    "little-memory",
    "menu",
    "own-data",
    "palette",
    "handbook",
    "save-new",
    "wrong-values",
)
"""Where little room changes the layout: at 80×24, too."""

LIGHT = ("wrong-values", "menu")
"""Where colour says most: in the light theme, too."""

LARGE = ("gpus-8", "wrong-values")
"""Where much room changes the layout: at 200×60, too."""


@pytest.mark.parametrize(("name", "size", "theme"), matrix(SCENES, small=SMALL_TOO, light=LIGHT, large=LARGE))
async def test_configure(
    name: str, size: tuple[int, int], theme: str, compare_picture: ComparePicture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = SCENES[name]
    monkeypatch.setattr("tuiapp.screens.configure.inspect_for", lambda screen: None)
    if scene.no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    if scene.own_presets:
        save_preset("digits-sgd", RunConfig(optimizer="sgd", learning_rate=0.05), "what the paper used")
        (presets_dir() / "old.toml").write_text("schema = 7\n")

    async def play(pilot: Pilot[Any]) -> None:
        await ready(pilot)
        await scene.before(pilot)

    released.clear()
    try:
        app = Stage(theme=theme, preset="quickstart", **{"machine": scene.machine, **scene.given})
        await compare_picture(app, size, play)
    finally:
        released.set()
