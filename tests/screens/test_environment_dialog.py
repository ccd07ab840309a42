"""Enter on a backend that cannot run here: its environment is made from inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, OptionList

from tests.kit.configure_app import Start, field, until
from tests.kit.wheels import offline
from tuiapp.screens.preset_dialogs import EnvironmentDialog
from tuiapp.trainers.config.catalog import Backend
from tuiapp.trainers.config.installed import OWN, Installed
from tuiapp.trainers.config.interpreters import environments_dir, find_interpreter

pytestmark = pytest.mark.nightly


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter that runs the tests seems to have no PyTorch."""
    missing: Callable[[Backend, Installed], list[str]] = Backend.missing

    def lacks(self: Backend, installed: Installed) -> list[str]:
        return ["torch"] if self.framework == "torch" and installed is OWN else missing(self, installed)

    monkeypatch.setattr(Backend, "missing", lacks)


async def choose(pilot: Pilot[None], backend: str) -> None:
    """Choose a backend from the menu."""
    field(pilot, "backend").focus_control()
    await pilot.press("enter")
    await until(pilot, lambda: bool(field(pilot, "backend").query(OptionList)))
    menu = field(pilot, "backend").query_one(OptionList)
    menu.highlighted = menu.get_option_index(backend)
    await pilot.press("enter")


def dialog(pilot: Pilot[None]) -> EnvironmentDialog | None:
    """The dialog, if it is open."""
    top: Any = pilot.app.screen
    return top if isinstance(top, EnvironmentDialog) else None


def is_open(pilot: Pilot[None]) -> bool:
    top = dialog(pilot)
    return top is not None and bool(top.query(Button))


def text(pilot: Pilot[None], selector: str = "#text") -> str:
    top = dialog(pilot)
    assert top is not None
    return str(top.query_one(selector).render())


async def test_it_is_made_and_the_backend_chosen(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch, tmp_path / "wheels")
    async with start() as pilot:
        assert "torch not installed" in field(pilot, "backend").problem
        field(pilot, "backend").show_text("jax-pmap")
        await choose(pilot, "torch-dp")
        await until(pilot, lambda: is_open(pilot))
        assert "torch not installed: pip install" in text(pilot)
        assert f"{environments_dir()}/torch: torch==2.13.0, " in " ".join(text(pilot).split())
        assert "Downloads about 1 MB" in " ".join(text(pilot).split())
        await pilot.press("enter")
        await until(pilot, lambda: dialog(pilot) is None)
        assert find_interpreter("torch-dp").origin == "created"
        await until(pilot, lambda: field(pilot, "backend").text == "torch-dp")
        assert field(pilot, "backend").problem == ""
        assert "torch/bin/python" in field(pilot, "backend").help


async def test_escape_cancels_before_and_while_it_is_made(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, tmp_path / "wheels")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text("#!/bin/sh\necho Downloading the world; exec sleep 600\n")
    (tmp_path / "bin" / "uv").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    async with start() as pilot:
        await choose(pilot, "torch-ddp")
        await until(pilot, lambda: is_open(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) is None)
        assert not environments_dir().exists()
        await choose(pilot, "torch-ddp")
        await until(pilot, lambda: is_open(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "Downloading the world" in text(pilot, "#progress"))
        await pilot.press("escape")
        await until(pilot, lambda: dialog(pilot) is None)
        assert not (environments_dir() / "torch").exists()
        assert "torch not installed" in field(pilot, "backend").problem
