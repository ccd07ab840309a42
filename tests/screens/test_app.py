"""The way between the screens, and out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tests.screens.configure_app import until
from trainers.contract.config import RunConfig, to_toml
from trainers.contract.machine import Machine
from trainers.contract.mailbox import take
from trainers.contract.rundir import RunDir
from tuiapp.app import TuiApp
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.confirm import Choice
from tuiapp.screens.run import RunScreen
from tuiapp.terminal import PatientDriver


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


async def test_leaves_at_once_when_the_run_has_ended(tmp_path: Path, machine: Machine, ended: RunDir) -> None:
    app = make_app(tmp_path, machine, ended)
    async with app.run_test() as pilot:
        assert isinstance(app.screen, RunScreen)
        await pilot.press("q")
        await until(pilot, lambda: app._exit)
    assert app.farewell == ""


@pytest.mark.parametrize(
    ("keys", "commands", "farewell"),
    [
        (["enter"], [], "Run 20261120T101500-torch-ddp-mlp-3fa1 goes on. Watch it: tuiapp attach 20261120T101500-"),
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
    assert take(live.commands) == commands
    assert app.farewell.startswith(farewell)


@pytest.mark.parametrize("keys", [["escape"], ["left", "enter"]])
async def test_leaving_can_be_called_off(tmp_path: Path, machine: Machine, live: RunDir, keys: list[str]) -> None:
    app = make_app(tmp_path, machine, live)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+q")
        await asked(pilot)
        # Asking twice asks once.
        await pilot.press("ctrl+q")
        await pilot.press(*keys)
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert not app._exit
    assert take(live.commands) == []


async def test_back_to_configure_and_to_the_run_again(tmp_path: Path, machine: Machine, live: RunDir) -> None:
    app = make_app(tmp_path, machine, live)
    async with app.run_test() as pilot:
        assert isinstance(app.screen, RunScreen)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen))
        await pilot.press("ctrl+q")
        await asked(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))


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


async def test_a_launched_run_is_shown(tmp_path: Path, machine: Machine, live: RunDir) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine, launcher=lambda config, runs_dir, machine: live)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen))
        assert isinstance(app.screen, ConfigureScreen)
        assert not app.screen.launching
    assert "goes on" in app.farewell


async def test_only_themes_in_which_everything_can_be_seen(tmp_path: Path, machine: Machine) -> None:
    themes = make_app(tmp_path, machine).available_themes
    assert {"textual-dark", "textual-light"} <= set(themes)
    assert not [theme.name for theme in themes.values() if theme.name.startswith("ansi")]


async def test_q_is_a_letter_in_a_text_field(tmp_path: Path, machine: Machine) -> None:
    app = make_app(tmp_path, machine)
    async with app.run_test() as pilot:
        box = next(box for box in app.screen.query(Input) if box.display)
        box.focus()
        await pilot.press("q", "question_mark")
        assert box.value == "q?"
        await pilot.press("f1")
        await until(pilot, lambda: bool(app.screen.query("HelpPanel")))


async def test_children_see_no_color(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert make_app(tmp_path, machine).no_color
    assert os.environ["NO_COLOR"] == "1"


def test_input_that_cannot_be_decoded_is_survived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = TuiApp(runs_dir=tmp_path)
    assert app.driver_class is PatientDriver
    reads = iter([UnicodeDecodeError("utf-8", b"\xc8", 0, 1, "X10 mouse"), None])

    def read_or_raise(self: object) -> None:
        if error := next(reads):
            raise error

    monkeypatch.setattr("textual.drivers.linux_driver.LinuxDriver.run_input_thread", read_or_raise)
    driver = PatientDriver.__new__(PatientDriver)
    driver.exit_event = Event()
    driver.run_input_thread()
    assert next(reads, "all read") == "all read"


def test_importing_the_app_is_light() -> None:
    heavy = {"torch", "jax", "flax", "keras", "optax", "plotext", "numpy", "markdown_it", "tuiapp.screens.run"}
    code = f"import sys, tuiapp.app; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
