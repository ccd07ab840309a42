"""Run: one run, live or ended, at a glance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from trainers.contract.rundir import RunDir
from trainers.launch import resume
from tuiapp.feed import Feed, JournalFeed
from tuiapp.screens.arrangement import arrange
from tuiapp.screens.run_control import Resumer, RunControl
from tuiapp.state.run_facts import RunStatus
from tuiapp.state.run_state import RunState, Topic
from tuiapp.widgets.alert_strip import AlertStrip
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.failure_panel import FailurePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.loss_chart import LossChart
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.run_header import RunHeader
from tuiapp.widgets.sharding_map import ShardingMap

TICK_S = 0.15
"""How often what has arrived is taken and shown."""

FOLD_BUDGET_S = 0.02
"""Most time per tick that folding may take: keys are served between ticks."""

TAKE = 64
"""Events folded between two looks at the clock."""

CATCH_UP_S = 0.01
"""Until the next tick, while more events wait than a tick can fold."""

PANELS = ("loss", "devices", "ranks", "sharding", "log", "failure")


class RunScreen(Screen[None]):
    """Header, curves, devices, ranks, sharding and log of one run."""

    CSS_PATH = "run.tcss"

    AUTO_FOCUS: ClassVar[str | None] = ""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012, Textual's type
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("c", "checkpoint", "Checkpoint"),
        Binding("u", "resume", "Resume"),
        Binding("y", "toggle_log_scale", "Log y"),
        # With these the footer would not fit 80 columns.
        Binding("left_square_bracket", "smoothing(-1)", "Less smooth", key_display="[", show=False),
        Binding("right_square_bracket", "smoothing(1)", "Smoother", key_display="]", show=False),
        Binding("r", "next_rank", "Rank"),
        Binding("f", "follow", "Follow", show=False),
        Binding("slash", "search", "Search", key_display="/"),
        *(Binding(str(n), f"panel('{name}')", name.capitalize(), show=False) for n, name in enumerate(PANELS, start=1)),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?"),
        Binding("escape", "back", "Back"),
        Binding("q", "app.leave", "Leave"),
    ]

    @dataclass
    class RunUpdated(Message):
        """Events were folded in; says which parts they changed."""

        topics: frozenset[Topic]

    @dataclass
    class RunFinished(Message):
        """The run has ended, or turned out to be lost."""

        status: RunStatus

    chosen: reactive[str] = reactive("")
    """The panel that has the room to itself; "" for all, where all have room."""

    single: reactive[bool] = reactive(False)
    """Whether there is room for one panel at a time only."""

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
        self.state = RunState(run.run_id)
        self._feed = feed or JournalFeed(run)
        self._clock = clock
        self._control = RunControl(self, run, resumer)
        self._second = -1
        self._finished: RunStatus | None = None
        self._attempt = 0
        self._offered = (False, False)
        """What the footer offers: a checkpoint, to resume."""

    @property
    def is_live(self) -> bool:
        """Whether the run goes on, as far as is known."""
        return self.state.is_live

    def compose(self) -> ComposeResult:  # noqa: D102
        yield RunHeader(id="header")
        yield AlertStrip(id="alert")
        yield PanelTabs(id="tabs")
        with Container(id="body"):
            with Container(id="upper"):
                with Vertical(id="left"):
                    yield LossChart(id="loss", classes="panel")
                    yield RankTable(id="ranks", classes="panel")
                with Vertical(id="right"):
                    yield DevicePanel(id="devices", classes="panel")
                    yield ShardingMap(id="sharding", classes="panel")
            with Container(id="lower"):
                yield FailurePanel(directory=str(self.run.path), id="failure", classes="panel")
                yield LogView(id="log", classes="panel")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to watch."""
        for number, name in enumerate(PANELS, start=1):
            self.query_one(f"#{name}").border_title = Content(f"{number} {name}")
        self._arrange()
        self._feed.start()
        self._take()

    def on_unmount(self) -> None:
        """Stop watching; the run goes on."""
        self._feed.close()

    def on_resize(self) -> None:
        """One panel at a time where there is no room for all."""
        self.single = self.size.width < 100 or self.size.height < 30

    def _take(self) -> None:
        """Fold what has arrived, for a bounded time; say what changed; come back soon."""
        started = time.perf_counter()
        more = True
        while more and time.perf_counter() - started < FOLD_BUDGET_S:
            events = self._feed.take(TAKE)
            for event in events:
                self.state.apply(event)
            more = len(events) == TAKE
        if not more and self._feed.lost:
            self.state.mark_lost(removed=not self.run.path.exists())
        topics = self.state.take_changes()
        second = int(self._clock())
        if second != self._second:
            # Times and silences grow without events.
            self._second = second
            topics |= {"run", "ranks"} if self.state.is_live else set()
        if topics:
            self.post_message(self.RunUpdated(topics))
        self.set_timer(CATCH_UP_S if more else TICK_S, self._take)

    @on(RunUpdated)
    def _show(self, event: RunUpdated) -> None:
        state, now, topics = self.state, self._clock(), event.topics
        if "run" in topics:
            self._notice_attempt()
            if (offered := (state.is_live, state.can_resume)) != self._offered:
                self._offered = offered
                self.refresh_bindings()
            self.query_one(RunHeader).show(state, now)
        if "ranks" in topics:
            self.query_one(RankTable).show(state, now)
        if "curves" in topics:
            self.query_one(LossChart).show(state)
        if "devices" in topics:
            self.query_one(DevicePanel).show(state)
        if "sharding" in topics:
            self.query_one(ShardingMap).show(state)
        if "log" in topics:
            self.query_one(LogView).show(state)
        if "alerts" in topics:
            self.query_one(AlertStrip).show(state)
            self.query_one(FailurePanel).show(state)
            self._arrange()
        if self._finished != state.status and not state.is_live:
            self._finished = state.status
            self.post_message(self.RunFinished(state.status))

    def _notice_attempt(self) -> None:
        """A run that goes on again can be stopped again, and end again; the rank that was chosen may be gone."""
        attempt = self.state.started.attempt if self.state.started else 0
        if attempt == self._attempt:
            return
        self._attempt, self._finished, self._control.asked_to_stop = attempt, None, False
        log = self.query_one(LogView)
        if log.rank is not None and log.rank not in self.state.ranks:
            self.query_one(LossChart).rank = log.rank = None

    def watch_single(self) -> None:
        """Arrange the panels."""
        self._arrange()

    def watch_chosen(self) -> None:
        """Arrange the panels."""
        self._arrange()

    def _arrange(self) -> None:
        """Show all panels, or the chosen one, with the containers around it."""
        if not self.query(PanelTabs):
            return
        arrange(self, PANELS, failed=bool(self.state.failures), chosen=self.chosen, single=self.single)

    @on(PanelTabs.Chosen)
    def _choose_tab(self, event: PanelTabs.Chosen) -> None:
        self.chosen = PANELS[event.index]

    def action_panel(self, name: str) -> None:
        """Give a panel all the room; once more gives it back."""
        if name == "failure" and not self.state.failures:
            return
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

    def action_toggle_log_scale(self) -> None:
        """Switch the loss axis between linear and logarithmic."""
        chart = self.query_one(LossChart)
        chart.log_scale = not chart.log_scale

    def action_smoothing(self, by: int) -> None:
        """Smooth the curves more or less."""
        self.query_one(LossChart).change_smoothing(by)

    def action_next_rank(self) -> None:
        """Choose the next rank for the chart and the log; after the last one, all of them."""
        log = self.query_one(LogView)
        ranks = [None, *sorted(self.state.ranks)]
        place = ranks.index(log.rank) if log.rank in ranks else 0
        log.rank = ranks[(place + 1) % len(ranks)]
        self.query_one(LossChart).rank = log.rank

    def action_follow(self) -> None:
        """Follow the log, or stand still."""
        self.query_one(LogView).toggle_follow()

    def action_search(self) -> None:
        """Look for lines in the log."""
        if self.single:
            self.chosen = "log"
        self.query_one(LogView).open_search()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer a checkpoint while the run goes on, and to resume it when it is over and can be."""
        if action == "checkpoint":
            return self.state.is_live
        if action == "resume":
            return self.state.can_resume and not self._control.resuming
        return True

    def action_checkpoint(self) -> None:
        """Ask the run to save a checkpoint and go on."""
        self._control.checkpoint()

    @work(exclusive=True, group="control")
    async def action_stop(self) -> None:
        """Stop the run, having asked."""
        await self._control.stop(self.state)

    @work(exclusive=True, group="control")
    async def action_resume(self) -> None:
        """Go on with the run, having asked; this screen then shows how it goes on."""
        await self._control.resume(self.state)
