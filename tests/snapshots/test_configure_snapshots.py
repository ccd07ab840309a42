"""How Configure looks. After a wanted change: `pytest tests/snapshots --snapshot-update`, and look at the pictures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.screens.configure_app import screen, type_into, until
from tests.screens.test_configure_screen import GPUS
from trainers.contract.config import RunConfig
from trainers.contract.machine import Machine
from trainers.contract.presets import presets_dir, save_preset
from trainers.contract.runs import default_runs_dir
from tuiapp.app import TuiApp
from tuiapp.screens.save_preset import SavePreset

SIZES = [(80, 24), (120, 40)]

Before = Callable[[Pilot[None]], Awaitable[None]]


async def nothing(pilot: Pilot[None]) -> None:
    await pilot.pause()


async def wrong_values(pilot: Pilot[None]) -> None:
    await type_into(pilot, "learning_rate", "fast")
    await type_into(pilot, "global_batch_size", "0")


async def edited(pilot: Pilot[None]) -> None:
    await type_into(pilot, "epochs", "3")
    await type_into(pilot, "learning_rate", "0.01")


async def saving(pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+s")
    await until(pilot, lambda: isinstance(pilot.app.screen, SavePreset))
    await pilot.press(*"quickstart")
    await pilot.pause()


async def menu(pilot: Pilot[None]) -> None:
    await pilot.press("tab", "down", "enter")
    await until(pilot, lambda: bool(screen(pilot).query("ChoiceInput OptionList")))


@pytest.fixture
def own_presets() -> None:
    save_preset("digits-sgd", RunConfig(optimizer="sgd", learning_rate=0.05), "what the paper used")
    (presets_dir() / "old.toml").write_text("schema = 7\n")


@pytest.mark.usefixtures("own_presets")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("before", [nothing, edited, wrong_values, saving, menu], ids=lambda before: before.__name__)
def test_configure(snap_compare: Any, machine: Machine, before: Before, size: tuple[int, int]) -> None:
    app = TuiApp(runs_dir=default_runs_dir(), preset="quickstart", machine=machine)
    assert snap_compare(app, terminal_size=size, run_before=before)


def test_no_presets_of_ones_own_and_an_unknown_machine(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.screens.configure.ConfigureScreen._inspect", lambda self: None)
    assert snap_compare(TuiApp(runs_dir=default_runs_dir()), terminal_size=(120, 40))


def test_gpus(snap_compare: Any) -> None:
    machine = Machine(cpu_cores=64, memory_total_bytes=512 << 30, gpus=GPUS, driver="580.12")
    app = TuiApp(runs_dir=default_runs_dir(), config=RunConfig(device_ids=("1", "3")), machine=machine)
    assert snap_compare(app, terminal_size=(200, 60))
