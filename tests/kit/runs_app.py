"""The Runs screen in an app of its own, with a lister that gives out what a test puts in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from textual import on
from textual.app import App
from textual.message import Message

from tests.kit.recorded import CONFIG
from tuiapp.feeds.runs_feed import Listing, RunsFeed
from tuiapp.screens.requests import CloneRun, CompareRuns, OpenRun
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.contract.events import RunStarted, Summary
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import ListedStatus, RunInfo
from tuiapp.widgets.run_table import RunTable

HOME = Path("/home/ada/runs")
STARTED = 1_795_169_700.0


BEGUN = RunStarted(run_id="", host="", pid=0, config={}, world_size=2)


def info(
    number: int, status: ListedStatus = "completed", *, problem: str = "", reason: str = "", **keys: Any
) -> RunInfo:
    """A run of a list; the higher its number the newer it is."""
    config = None if problem else msgspec.structs.replace(CONFIG, **keys)
    name = f"20261120T1015{number % 60:02}-{config.backend if config else 'torch-ddp'}-net-{number:04x}"
    summary = Summary(
        steps=290, epochs=10, examples_per_second=900.0 + number, loss=1 / (number + 1), seconds=17.5, test_accuracy=0.9
    )
    begun = None if status == "queued" else BEGUN
    return RunInfo(RunDir(HOME / name), status, config, problem, summary, reason, STARTED + 60 * number, begun=begun)


class ListLister(RunsFeed):
    """Gives out one list after the other."""

    def __init__(self, infos: Sequence[RunInfo] | None = (), problem: str = "") -> None:
        self.fresh = Listing(list(infos), problem) if infos is not None else None
        self.calls: list[str] = []

    def put(self, *infos: RunInfo) -> None:
        self.fresh = Listing(list(infos))

    def start(self) -> None:
        self.calls.append("start")

    def take(self) -> Listing | None:
        fresh, self.fresh = self.fresh, None
        return fresh

    def poll_now(self) -> None:
        self.calls.append("look")

    def close(self) -> None:
        self.calls.append("close")


class RunsApp(App[None]):
    """Shows a list of runs over an empty screen, and records what it asks for."""

    def __init__(self, lister: ListLister, **more: Any) -> None:
        super().__init__()
        self.lister = lister
        self.runs_screen = RunsScreen(HOME, lister, **more)
        self.asked: list[Message] = []

    def on_mount(self) -> None:
        self.push_screen(self.runs_screen)

    @on(OpenRun)
    @on(CompareRuns)
    @on(CloneRun)
    def _record(self, message: Message) -> None:
        self.asked.append(message)

    @property
    def rows(self) -> list[str]:
        """The table as it stands on the screen, without its heading, up to the first empty line."""
        table = self.runs_screen.query_one(RunTable)
        lines = [table.render_line(y).text.rstrip() for y in range(1, table.size.height)]
        return lines[: lines.index("")] if "" in lines else lines

    @property
    def states(self) -> list[str]:
        """The second word of each row, after its symbol, marks left out."""
        return [row[2:].split()[1] for row in self.rows]
