"""Compares what an app shows with a stored picture, on a clock, a time zone and a locale that are always the same."""

from __future__ import annotations

import difflib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.data import SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation
from textual.app import App
from textual.pilot import Pilot

from tests.kit.screen_text import screen_text
from tuiapp.view.devices.processes import Seen

PATIENCE_S = 15.0
"""How long a picture that differs may still become the expected one: a loaded machine draws late."""

QUIET_S = 0.4
"""How long a screen stands still before a new picture of it is stored."""

Before = Callable[[Pilot[Any]], Awaitable[None]]


class ComparePicture(Protocol):
    """Fails unless an app looks as its stored picture shows it."""

    async def __call__(
        self, app: App[Any], size: tuple[int, int], before: Before | None = None, *, notifications: bool = False
    ) -> None: ...


class ScreenTextExtension(SingleFileSnapshotExtension):
    """One text file per test. Left-over files are found by test_left_over.py, whatever part of the suite is run."""

    _file_extension = "txt"
    _write_mode = WriteMode.TEXT

    def discover_snapshots(
        self, *, test_location: PyTestLocation, ignore_extensions: list[str] | None = None
    ) -> SnapshotCollections:
        """None: Syrupy would take the pictures of tests that were left out, as slow ones are, for unused."""
        return SnapshotCollections()


@pytest.fixture(autouse=True)
def _always_the_same(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    # Pictures show no process of the machine that makes them.
    seen = {
        pid: Seen(1, "ada", 12.5 * (pid - 4120), 400 << 20, f"python train.py --shard {pid - 4120}")
        for pid in range(4121, 4127)
    }
    monkeypatch.setattr("tuiapp.library.processes.ProcessReader.read", lambda _: seen)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def compare_picture(snapshot: SnapshotAssertion, tmp_path: Path) -> ComparePicture:
    pictures = snapshot.use_extension(ScreenTextExtension)
    location = Path(pictures.extension.get_location(test_location=pictures.test_location, index=0))

    async def compare(
        app: App[Any], size: tuple[int, int], before: Before | None = None, *, notifications: bool = False
    ) -> None:
        stored = location.read_text() if location.exists() else ""
        async with app.run_test(size=size, notifications=notifications) as pilot:
            await pilot.pause()
            if before is not None:
                await before(pilot)
            shown = await _shown(pilot, "" if pictures.update_snapshots else stored)
        if pictures != shown:
            made = tmp_path / location.name
            made.write_text(shown)
            diff = difflib.unified_diff(stored.splitlines(), shown.splitlines(), str(location), str(made), lineterm="")
            pytest.fail("\n".join(diff), pytrace=False)

    return compare


async def _shown(pilot: Pilot[Any], stored: str) -> str:
    """What the app shows: the stored picture as soon as it does, or else what it shows when it stands still."""
    began = changed = time.monotonic()
    shown = ""
    while True:
        await pilot.pause()
        now, before, shown = time.monotonic(), shown, screen_text(pilot.app)
        changed = now if shown != before else changed
        if shown == stored or (now - changed > QUIET_S and (not stored or now - began > PATIENCE_S)):
            return shown
        await pilot.pause(0.02)
