"""The way between the screens, and out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.pilot import Pilot
from textual.screen import Screen

from tests.kit.configure_app import screen, until
from tests.kit.shown import notices
from tuiapp.app import TuiApp
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.devices import DevicesScreen
from tuiapp.screens.dialog import Choice
from tuiapp.screens.keys import KeysHelp
from tuiapp.screens.run import RunScreen
from tuiapp.screens.runs import RunsScreen
from tuiapp.terminal.driver import RobustDriver
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import take_commands


def make_run(runs_dir: Path, number: int = 0) -> RunDir:
    run = RunDir(runs_dir / f"20261120T10150{number}-torch-ddp-mlp-3fa1")
    run.commands.mkdir(parents=True)
    run.config.write_text(to_toml(RunConfig(model="mlp")))
    run.journal.touch()
    return run


@pytest.fixture
def ended(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[RunDir]:
    run = make_run(tmp_path)
    lock = run.take_lock()
    yield run
    os.close(lock)


def make_app(tmp_path: Path, machine: Machine, run: RunDir | None = None) -> TuiApp:
    return TuiApp(runs_dir=tmp_path, run=run, machine=machine)


async def ready(pilot: Pilot[None]) -> None:
    """Wait until the fields of the form are there."""
    await until(pilot, lambda: screen(pilot).is_mounted)


async def asked(pilot: Pilot[None]) -> Choice:
    await until(pilot, lambda: isinstance(pilot.app.screen, Choice))
    assert isinstance(pilot.app.screen, Choice)
    return pilot.app.screen


async def test_leaves_at_once_without_a_run(tmp_path: Path, machine: Machine) -> None:
    app = make_app(tmp_path, machine)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app._exit)
    assert app.farewell == ""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("keys", "commands", "farewell"),
    [
        (["enter"], [], "Run 20261120T101500-torch-ddp-mlp-3fa1 continues. Watch it: tuiapp attach 20261120T101500-"),
        (["right", "enter"], ["stop"], "Run 20261120T101500-torch-ddp-mlp-3fa1 is stopping."),
        (["right", "right", "enter"], ["stop-now"], "Run 20261120T101500-torch-ddp-mlp-3fa1 is stopping."),
    ],
)
async def test_a_live_run_is_left_or_stopped(
    tmp_path: Path, machine: Machine, live: RunDir, keys: list[str], commands: list[str], farewell: str
) -> None:
    app = make_app(tmp_path, machine, live)
    async with app.run_test() as pilot:
        await pilot.press("q")
        await asked(pilot)
        await pilot.press(*keys)
        await until(pilot, lambda: app._exit)
    assert take_commands(live.commands) == commands
    assert app.farewell.startswith(farewell)


@pytest.mark.by_hand
async def test_notices_stay_on_their_screen(tmp_path: Path, machine: Machine) -> None:
    app = make_app(tmp_path, machine, make_run(tmp_path))
    async with app.run_test() as pilot:
        await pilot.press("6")
        assert "No failure or hang." in notices(app)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, KeysHelp))
        assert notices(app)
        await pilot.press("escape", "g")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))
        assert not notices(app)
        app.notify("It was removed.", severity="warning")
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, DevicesScreen))
        assert notices(app) == "It was removed."
        app.notify("later")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))
        assert "later" not in notices(app)


@pytest.mark.nightly
async def test_a_run_of_another_session_is_found(tmp_path: Path, machine: Machine) -> None:
    make_run(tmp_path, 9)
    run = make_run(tmp_path, 5)
    lock = run.take_lock()
    app = make_app(tmp_path, machine)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run == run
    os.close(lock)


@pytest.mark.nightly
async def test_a_launched_run_is_shown(tmp_path: Path, machine: Machine, live: RunDir) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine, launcher=lambda *_: live)
    async with app.run_test() as pilot:
        await ready(pilot)
        await pilot.press("ctrl+r")
        # Another run has the devices: it is the one that is shown then.
        await until(pilot, lambda: isinstance(app.screen, Choice))
        await pilot.click("#launch")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen))
        assert isinstance(app.screen, ConfigureScreen)
        assert not app.screen.launching
    assert "continues" in app.farewell


async def test_children_see_no_color(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert make_app(tmp_path, machine).no_color
    assert os.environ["NO_COLOR"] == "1"


def test_the_driver_is_the_patient_one(tmp_path: Path) -> None:
    assert TuiApp(runs_dir=tmp_path).driver_class is RobustDriver


@pytest.mark.nightly
async def test_two_sizes_under_way_come_to_rest(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(tmp_path, machine)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        laid_out = 0
        original = Screen._screen_resized

        def count(self: Screen[Any], size: Size) -> None:
            nonlocal laid_out
            laid_out += 1
            # What else there is to do stands between the sizes, so that neither takes the other's place.
            self.call_later(lambda: None)
            original(self, size)

        monkeypatch.setattr(Screen, "_screen_resized", count)
        # As a busy machine leaves them: the second is there before the first has been dealt with.
        for size in (Size(90, 28), Size(100, 30)):
            app.screen.post_message(Resize(size, size))
            app.screen.call_later(lambda: None)
        for _ in range(50):
            await pilot.pause()
        assert laid_out < 10
        assert app.screen.size == Size(100, 30)


def test_importing_the_app_is_light() -> None:
    heavy = {"torch", "jax", "flax", "keras", "optax", "numpy", "markdown_it", "tuiapp.screens.run"}
    code = f"import sys, tuiapp.app; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.nightly
async def test_a_run_that_was_given_lies_beneath_the_runs(tmp_path: Path, machine: Machine, ended: RunDir) -> None:
    app = make_app(tmp_path, machine, ended)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        first = app.screen
        await pilot.press("g")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))
        screen = app.screen
        assert isinstance(screen, RunsScreen)
        await until(pilot, lambda: screen.current is not None)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is first)
        assert len(app.screen_stack) == 2


@pytest.mark.by_hand
def test_screens_that_are_gone_are_let_go_of(tmp_path: Path, ended: RunDir) -> None:
    command = [sys.executable, "-m", "tests.kit.let_go", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    # The last ones, whose messages and tasks may not have ended yet, and one that a task of the app began with.
    assert int(done.stdout) <= 4, done.stderr
