"""The first picture, and the keys that are typed before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual._compositor import Compositor
from textual.geometry import Size
from textual.strip import Strip

from tests.kit.configure_app import field, screen, until
from tests.screens.test_app import make_run
from tuiapp.app import TuiApp
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.requests import CloneRun
from tuiapp.screens.run import RunScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.widgets.preset_list import PresetList


@pytest.fixture(autouse=True)
def _patient_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may take long until a key is answered."""
    for limit in ("PATIENCE_S", "READY_PATIENCE_S"):
        monkeypatch.setattr(f"tuiapp.terminal.key_queue.{limit}", 60.0)


async def test_the_first_picture_has_the_fields(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[str] = []
    paint = Compositor.render_update

    def remember(compositor: Compositor, *given: Any, **named: Any) -> Any:
        painted.append("\n".join(strip.text for strip in compositor.render_strips()))
        return paint(compositor, *given, **named)

    monkeypatch.setattr(Compositor, "render_update", remember)
    app = TuiApp(runs_dir=tmp_path, machine=machine, preset="quickstart")
    async with app.run_test(size=(120, 45)) as pilot:
        await until(pilot, lambda: screen(pilot).is_mounted)
        for shown in ("quickstart", "torch-ddp", "Learning rate", "$ tuiapp run quickstart"):
            assert shown in painted[0]


@pytest.mark.nightly
async def test_keys_typed_before_the_form_is_there_reach_its_fields(tmp_path: Path, machine: Machine) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    # From the presets past backend, model, data and platform to the number of devices.
    for key in [*["tab"] * 5, "4", "tab", "tab", "9"]:
        app.post_message(events.Key(key, key if len(key) == 1 else None))
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen(pilot).is_mounted and field(pilot, "devices").text == "4")
        await until(pilot, lambda: "9" in field(pilot, "global_batch_size").text)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_nothing_jumps_after_the_first_picture(
    size: tuple[int, int], tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The presets are drawn at the one size that they keep, and each has its lines from the first time on."""
    drawn: set[tuple[Size, Size]] = set()
    draw = PresetList.render_line

    def remember(presets: PresetList, y: int) -> Strip:
        drawn.add((presets.size, presets.virtual_size))
        return draw(presets, y)

    monkeypatch.setattr(PresetList, "render_line", remember)
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: screen(pilot).is_mounted)
        await pilot.pause()
        assert len(drawn) == 1


@pytest.mark.nightly
async def test_beneath_a_run_the_form_can_be_filled_before_it_is_there(tmp_path: Path, machine: Machine) -> None:
    run = make_run(tmp_path)
    app = TuiApp(runs_dir=tmp_path, machine=machine, run=run)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        app.screen.post_message(CloneRun(run, RunConfig(model="mlp", devices=4)))
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen) and app.screen.is_mounted)
        assert field(pilot, "devices").text == "4"
        assert f"--like {run.run_id}" in (screen(pilot).command or "")
        # What would have stood there comes back.
        await pilot.press("ctrl+z")
        await until(pilot, lambda: field(pilot, "devices").text == str(RunConfig().devices))
