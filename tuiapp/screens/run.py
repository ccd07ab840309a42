"""Run: one run, live or ended, at a glance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Footer

from trainers.contract.rundir import RunDir
from trainers.launch import resume
from tuiapp.feeds.feed import Feed, JournalFeed
from tuiapp.screens.arrangement import WIDE, Arrangement, arrange
from tuiapp.screens.run_actions import RunActions
from tuiapp.screens.run_charts import RunCharts
from tuiapp.screens.run_control import Resumer, RunControl
from tuiapp.screens.run_keys import PANELS, RUN_KEYS
from tuiapp.screens.run_reader import Reading, RunReader
from tuiapp.state.run_facts import RunStatus
from tuiapp.state.run_state import Topic
from tuiapp.widgets.alert_strip import AlertStrip
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.loss_chart import LossChart
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.replay_bar import ReplayBar
from tuiapp.widgets.run_header import RunHeader
from tuiapp.widgets.sharding_map import ShardingMap

TICK_S = 0.15
"""How often what has arrived is taken and shown."""

FOLD_BUDGET_S = 0.01
"""Most time per tick that folding may take: keys are served between ticks."""

CATCH_UP_S = 0.003
"""Until the next tick, while more events wait than a tick can fold, or a key is being answered."""

FIRST_PICTURE_S = 0.3
"""How long the first picture waits for a journal that is read to its end by then. Without it, it would be an empty one,
and cost as much as the next."""

MOST_PUT_OFF = 70
"""How often in a row a key may put a tick off."""


class RunScreen(RunActions):
    """Header, curves, devices, ranks, sharding and log of one run."""

    CSS_PATH = "run.tcss"

    AUTO_FOCUS: ClassVar[str | None] = ""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012, Textual's type
    BINDINGS: ClassVar[list[BindingType]] = RUN_KEYS

    @dataclass
    class RunUpdated(Message):
        """Events were folded in; says which parts they changed."""

        topics: frozenset[Topic]

    @dataclass
    class RunFinished(Message):
        """The run has ended, or turned out to be lost."""

        status: RunStatus

    def __init__(
        self, run: RunDir, feed: Feed | None = None, clock: Callable[[], float] = time.time, resumer: Resumer = resume
    ) -> None:
        """Prepare the screen.

        Args:
            run: What to watch.
            feed: Where its events come from; its journal by default.
            clock: Gives the time in seconds since the epoch.
            resumer: Goes on with the run once it is over.
        """
        super().__init__()
        self.run = run
        self._reader = RunReader(run, feed or JournalFeed(run), clock)
        self._control = RunControl(self, run, resumer)
        self._charts = RunCharts(self, self.arrange_panels)
        self._second = -1
        self._put_off = 0
        self._arranged: Arrangement | None = None
        self._finished: RunStatus | None = None
        self._attempt = 0
        self._offered = (False, False)
        """What the footer offers: a checkpoint, to resume."""

    def compose(self) -> ComposeResult:  # noqa: D102
        yield RunHeader(id="header")
        yield ReplayBar(id="replay")
        yield AlertStrip(id="alert")
        yield PanelTabs(id="tabs")
        with Container(id="body"):
            with Container(id="upper"):
                with Vertical(id="left"):
                    with Container(id="charts"):
                        yield LossChart(id="loss", classes="panel")
                        yield LossChart(id="second", classes="panel")
                    yield RankTable(id="ranks", classes="panel")
                with Vertical(id="right"):
                    yield DevicePanel(id="devices", classes="panel")
                    yield ShardingMap(id="sharding", classes="panel")
            with Container(id="lower"):
                yield FailurePanel(directory=str(self.run.path), id="failure", classes="panel")
                yield LogView(id="log", classes="panel")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        """Begin to watch."""
        for number, name in enumerate(PANELS, start=1):
            self.query_one(f"#{name}").border_title = Content(f"{number} {name}")
        self._charts.begin()
        self.arrange_panels()
        self.query_one(ReplayBar).display = self._reader.replay is not None
        self._reader.start()
        self._tell(await self._reader.read_soon(FOLD_BUDGET_S, FIRST_PICTURE_S))

    def on_unmount(self) -> None:
        """Stop watching; the run goes on."""
        self._reader.close()

    def on_resize(self) -> None:
        """One panel at a time where there is no room for all."""
        self.single = self.size.width < 100 or self.size.height < 30
        self.arrange_panels()

    def _take(self) -> None:
        """Fold what has arrived, for a bounded time, unless a key is being answered."""
        if getattr(self.app, "is_answering", False) and self._put_off < MOST_PUT_OFF:
            self._put_off += 1
            self.set_timer(CATCH_UP_S, self._take)
            return
        self._put_off = 0
        self._tell(self._reader.read(FOLD_BUDGET_S))

    def _tell(self, reading: Reading) -> None:
        """Say what changed; come back soon."""
        if reading.topics:
            self.post_message(self.RunUpdated(reading.topics))
        if replay := self._reader.replay:
            self.query_one(ReplayBar).show(
                speed=replay.speed, paused=replay.paused, position=replay.position, duration=replay.duration
            )
        self.set_timer(CATCH_UP_S if reading.more else TICK_S, self._take)

    @on(RunUpdated)
    def _show(self, event: RunUpdated) -> None:
        state, now, topics = self.state, self._reader.now, event.topics
        if "run" in topics:
            self._notice_attempt()
            if (offered := (self.is_live, state.can_resume)) != self._offered:
                self._offered = offered
                self.refresh_bindings()
            self.query_one(RunHeader).show(state, now)
        if "ranks" in topics:
            self.query_one(RankTable).show(state, now)
        if "curves" in topics:
            self._charts.show(state)
        if "devices" in topics:
            self.query_one(DevicePanel).show(state)
        if "sharding" in topics:
            self.query_one(ShardingMap).show(state)
        if "log" in topics:
            self.query_one(LogView).show(state)
        if "alerts" in topics:
            self.query_one(AlertStrip).show(state)
            self.query_one(FailurePanel).show(state)
            self.arrange_panels()
        if state.is_live:
            self._finished = None
        elif self._finished != state.status:
            self._finished = state.status
            if self._reader.replay is None:
                self.post_message(self.RunFinished(state.status))

    def _notice_attempt(self) -> None:
        """A run that goes on again can be stopped again, and end again; the rank that was chosen may be gone."""
        attempt = self.state.started.attempt if self.state.started else 0
        if attempt == self._attempt:
            return
        self._attempt, self._finished, self._control.asked_to_stop = attempt, None, False
        log = self.query_one(LogView)
        if self.state.ranks and log.rank is not None and log.rank not in self.state.ranks:
            self.choose_rank(None)

    def watch_single(self) -> None:
        """Arrange the panels."""
        self.arrange_panels()

    def watch_chosen(self) -> None:
        """Arrange the panels."""
        self.arrange_panels()

    def arrange_panels(self) -> None:
        """Show all panels, or the chosen one, with the containers around it."""
        if not self.query(PanelTabs):
            return
        wide, second = self.size.width >= WIDE, self._charts.wants_second
        arranged = Arrangement(self.state.fault, self.chosen, self.single, second, wide)
        # Styles are worked out anew for all that is in a screen whose classes are set.
        if arranged != self._arranged:
            self._arranged = arranged
            arrange(self, PANELS, arranged)

    @on(PanelTabs.Chosen)
    def _choose_tab(self, event: PanelTabs.Chosen) -> None:
        self.chosen = PANELS[event.index]

    def action_panel(self, name: str) -> None:
        """Give a panel all the room; once more gives it back."""
        self.chosen = "" if self.chosen == name and not self.single else name
        panel = self.query_one(f"#{name}", Widget)
        # So that the arrow keys scroll it.
        if target := next((widget for widget in (panel, *panel.query("*")) if widget.focusable), None):
            target.focus(scroll_visible=False)

    def action_back(self) -> None:
        """Give all panels their room again; otherwise leave the screen, the run goes on."""
        if self.chosen and not self.single:
            self.chosen = ""
        elif len(self.app.screen_stack) > 1:
            self.dismiss()
