"""The Run screen in an app of its own, with a feed that gives out what a test puts in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.app import App
from textual.pilot import Pilot

from tests.kit import histories as h
from tests.kit.at_rest import until as until
from tuiapp.actions.resume import Resumer
from tuiapp.screens.run import RunScreen
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import resume

LARGE, SMALL = (120, 40), (80, 24)


class ListFeed:
    """Gives out a list of events."""

    def __init__(self, events: Sequence[AnyEvent] = ()) -> None:
        self.events = list(events)
        self.lost = self.removed = False
        self.trouble = ""
        self.reading: float | None = None
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def take(self, limit: int) -> list[AnyEvent]:
        taken, self.events = self.events[:limit], self.events[limit:]
        return taken

    def close(self) -> None:
        self.calls.append("close")


class RunApp(App[None]):
    """Shows one run over an empty screen."""

    def __init__(
        self,
        events: Sequence[AnyEvent] = (),
        *,
        path: Path | None = None,
        now: float = 8.9,
        resumer: Resumer = resume,
    ) -> None:
        super().__init__()
        self.feed = ListFeed(events)
        self.run_dir = RunDir(path or Path("/home/ada/runs") / h.RUN_ID)
        self.now = now
        self.run_screen = RunScreen(self.run_dir, self.feed, clock=lambda: h.START + self.now, resumer=resumer)
        self.left = 0

    def on_mount(self) -> None:
        self.push_screen(self.run_screen)

    async def action_quit(self) -> None:
        self.left += 1


async def settled(pilot: Pilot[Any], app: RunApp) -> None:
    """Wait until all events are folded and shown: figures, and what a slow machine folds in pieces, come later."""
    reader = app.run_screen._reader
    await until(pilot, lambda: not app.feed.events and not reader._held and reader._second >= 0)
    await pilot.pause()
