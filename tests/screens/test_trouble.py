"""Alerts and failures on the Run screen: a hang's stacks, what can be dismissed, what is left of dead runs."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from textual.app import App
from textual.content import Content
from textual.widgets import Static

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.run_app import LARGE, SMALL, RunApp, settled, until
from tuiapp.screens import quit
from tuiapp.screens.dialog import Choice
from tuiapp.trainers.contract.events import Alert, AnyEvent, Stacks
from tuiapp.trainers.contract.orphans import Orphan
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.run_header import AlertStrip

STACKS = """Thread 0x00007f8a (most recent call first):
  File "/venv/trainers/rank/reporter.py", line 190, in _send_forever

Thread 0x00007f8b (most recent call first):
  File "/home/ada/[bold]model.py", line {line}, in step
  File "/venv/trainers/backends/torch_ddp.py", line 118, in train"""


HANG = "no progress for 30 s: rank 1 is behind, at step 129; rank 0 waits at step 130"


def hanging() -> list[AnyEvent]:
    """Two ranks, one of which does not get to its collective."""
    return [
        *h.running(last_step=120),
        *[h.steps(rank, 121, 130 - rank, 8.5) for rank in (0, 1)],
        *[Stacks(rank=rank, pid=4121 + rank, text=STACKS.format(line=20 + rank), **h.at(40.0)) for rank in (0, 1)],
        Alert(kind="hang", severity="error", rank=1, step=129, text=HANG, **h.at(40.1)),
    ]


def _told(app: RunApp) -> str:
    content = app.run_screen.query_one(FailurePanel).query_one(Static).content
    return content.plain if isinstance(content, Content) else str(content)


async def test_the_panel_of_trouble_is_called_after_what_it_shows() -> None:
    app = RunApp(h.running(last_step=72), now=41.0)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot, app)
        tabs, panel = app.run_screen.query_one(PanelTabs), app.run_screen.query_one(FailurePanel)
        assert tabs.names[-2] == "5 log"
        app.feed.events = hanging()[-3:]
        await until(pilot, lambda: tabs.names[-2] == "6 hang")
        assert (panel.border_title, tabs.active) == ("6 hang", 5)
        # The hang ends with ranks that are killed: what they say comes first, in the same place.
        app.feed.events = interrupted.failed()[-3:]
        await until(pilot, lambda: tabs.names[-2] == "6 failure")
        assert (panel.border_title, tabs.active, len(tabs.names)) == ("6 failure", 5, 7)


@pytest.mark.nightly
async def test_an_alert_is_dismissed_until_there_is_another() -> None:
    app = RunApp(interrupted.with_nan(), now=9.0)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot, app)
        strip = app.run_screen.query_one(AlertStrip)
        await until(pilot, lambda: strip.display)
        await pilot.press("A")
        await until(pilot, lambda: not strip.display)
        app.feed.events = [Alert(kind="disk", text="the disk is nearly full", **h.at(9.0))]
        await until(pilot, lambda: strip.display)
        await pilot.click(AlertStrip)
        await until(pilot, lambda: not strip.display)


class Bare(App[None]):
    """Nothing but the question about strays."""

    def __init__(self, runs_dir: Path) -> None:
        super().__init__()
        self._runs_dir = runs_dir

    def on_mount(self) -> None:
        self.run_worker(quit.offer_to_end_strays(self, self._runs_dir))


@pytest.mark.parametrize(("key", "ends"), [("enter", True), ("escape", False)])
async def test_what_a_run_left_behind_is_ended_when_the_user_says_so(tmp_path: Path, key: str, ends: bool) -> None:
    left = [Orphan(4121, 77, f"{h.RUN_ID}-{'0' * 16}", "0", "python -P -m tuiapp.trainers.rank.process x 0")]
    with (
        patch.object(quit, "find_orphans", return_value=left),
        patch.object(quit, "end_orphans", return_value=[]) as end,
        patch.object(quit, "ON_THEIR_WAY_S", 0.0),
    ):
        app = Bare(tmp_path)
        async with app.run_test(size=SMALL) as pilot:
            await until(pilot, lambda: isinstance(app.screen, Choice))
            assert f"{h.RUN_ID}: rank 0 (pid 4121)" in str(app.screen.query_one("#text", Static).content)
            await pilot.press(key)
            await pilot.pause()
            await app.workers.wait_for_complete()
            assert end.called == ends
