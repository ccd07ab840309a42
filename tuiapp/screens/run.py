"""Run: one run, live or ended, at a glance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Offset
from textual.reactive import reactive
from textual.widget import Widget

from tuiapp.actions import checkpoint, profile, stop
from tuiapp.actions.action import ActionError, configuration
from tuiapp.actions.resume import Resumer, refusal, resumable
from tuiapp.feeds.feed import Feed, JournalFeed
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.acting import ask_export, ask_report, ask_resume, ask_stop, copy_path, perform, tell
from tuiapp.screens.chart_grid import chart_keys
from tuiapp.screens.chart_sources import RunSource
from tuiapp.screens.keys import RefusingScreen
from tuiapp.screens.requests import CloneRun, CompareWith
from tuiapp.screens.run_panels import (
    LEAST_HEIGHT,
    LEAST_WIDTH,
    PANELS,
    WIDE,
    Arrangement,
    RunCharts,
    arrange,
    heights,
    is_alone,
)
from tuiapp.screens.run_reader import Reading, RunReader, steer
from tuiapp.terminal.slow_disk import patiently
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import resume
from tuiapp.trainers.state.run_state import RunState, Topic
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import join_words, sanitize
from tuiapp.view.grid import Pages
from tuiapp.widgets.device_panel import DevicePanel
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.media_panel import MediaPanel
from tuiapp.widgets.node_scroll import NodeScroll
from tuiapp.widgets.panel_tabs import PanelTabs
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.run_header import AlertStrip, ReplayBar, RunHeader
from tuiapp.widgets.steady_footer import SteadyFooter

if TYPE_CHECKING:
    from tuiapp.screens.metrics_grid import MetricsGrid
    from tuiapp.screens.profile import ProfileScreen

TICK_S = 0.2
"""Interval at which new events are read and shown."""

FOLD_BUDGET_S = 0.01
"""Longest time per tick for folding events: keys are served between ticks."""

CATCH_UP_S = 0.003
"""Time until the next tick while events are left over or a key is being answered."""

FIRST_PICTURE_S = 0.3
"""How long the first picture waits for a journal to be read; before, it would be empty and as costly as the next."""

MAX_DEFERRALS = 70
"""How often in a row a key may delay a tick."""

REPLAY_KEYS: list[BindingType] = [
    Binding("space", "replay('pause')", "Pause", id="run.pause", key_display="space"),
    Binding("comma", "replay('back')", "Back 5 %", id="run.back-5", key_display=",", show=False),
    Binding("full_stop", "replay('forward')", "Forward 5 %", id="run.forward-5", key_display=".", show=False),
    Binding("less_than_sign", "replay('slower')", "Slower", id="run.slower", key_display="<", show=False),
    Binding("greater_than_sign", "replay('faster')", "Faster", id="run.faster", key_display=">", show=False),
]

RUN_KEYS: list[BindingType] = [
    Binding("s", "stop", "Stop", tooltip="Stop the run", id="run.stop"),
    Binding("S", "checkpoint", "Save", tooltip="Save a checkpoint", id="run.checkpoint"),
    Binding("u", "resume", "Resume", tooltip="Resume, train longer", id="run.resume"),
    Binding("P", "profile", "Profile", tooltip="Where time goes", id="run.profile", show=False),
    Binding("e", "export", "Export", tooltip="Export its figures", id="run.export"),
    Binding("w", "report", "Report", tooltip="Write a report", id="run.report", show=False),
    Binding("c", "compare", "Compare", tooltip="Compare with a run", id="run.compare"),
    Binding("a", "again", "Run again", tooltip="Run again, by the form", id="run.again"),
    Binding("ctrl+y", "copy_path", "Copy path", id="run.copy-path"),
    *chart_keys("run", "metric", "grid"),
    Binding("r", "next_rank", "Rank", tooltip="Show the next rank", id="run.rank"),
    Binding("f", "follow", "Follow", id="run.follow", show=False),
    Binding("n", "find(1)", "Find next", id="run.find-next", show=False),
    Binding("N", "find(-1)", "Find previous", id="run.find-previous", show=False),
    Binding("l", "stream", "Output: stdout, stderr", id="run.output", show=False),
    Binding("o", "sort_ranks", "Sort ranks", id="run.sort-ranks", show=False),
    Binding("i", "about", "Name, tags, note", id="run.about", show=False),
    Binding("A", "dismiss_alert", "Dismiss the alert", id="run.dismiss-the-alert", show=False),
    Binding("slash", "search", "Find", tooltip="Search the log", id="run.search", key_display="/"),
    *(
        Binding(str(n), f"panel('{name}')", panel.label or name.capitalize(), id=f"run.panel-{n}", show=False)
        for n, (name, panel) in enumerate(PANELS.items(), start=1)
    ),
    *REPLAY_KEYS,
    Binding("f3", "devices", "Devices", tooltip="Watch the devices", id="app.devices", show=False),
    Binding("question_mark", "app.toggle_help", "Keys", tooltip="List the keys", id="app.help", key_display="?"),
    Binding("g", "app.show_runs", "Runs", tooltip="List all runs", id="app.runs"),
    Binding("escape", "back", "Back", id="run.back", show=False),
    Binding("q", "app.quit", "Quit", tooltip="Quit tuiapp", id="app.quit-letter"),
]


PAGES = {"left": -1, "right": 1, "far_left": -10, "far_right": 10}
"""Key of the charts → how many pictures further it goes."""

OF_ENDED = {
    "export": "To export it meanwhile: g, then e.",
    "compare": "To compare it meanwhile: g, then x and c.",
    "again": "To run it again meanwhile: g, then a.",
}
"""Actions offered for ended runs only, which leaves room in the footer, and where else they are for a live run."""


class RunScreen(RefusingScreen[None]):
    CSS_PATH = "run.tcss"
    AUTO_FOCUS: ClassVar[str | None] = ""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012, Textual's type
    BINDINGS: ClassVar[list[BindingType]] = RUN_KEYS

    KEY_GROUPS: ClassVar[dict[str, Sequence[str]]] = {
        "Charts": ("chart", "grid"),
        "Ranks and log": ("next_rank", "sort_ranks", "search", "find", "stream", "follow", "dismiss_alert"),
        "One panel large": ("panel",),
        "Replay": ("replay",),
        "Elsewhere": ("devices", "toggle_help", "show_runs", "back", "quit"),
    }

    chosen: reactive[str] = reactive("", repaint=False)
    """The panel shown alone; "" for all, where all fit."""
    single: reactive[bool] = reactive(False, repaint=False)

    def __init__(
        self, run: RunDir, feed: Feed | None = None, clock: Callable[[], float] = time.time, resumer: Resumer = resume
    ) -> None:
        """Events come from `feed`, by default the journal; `clock` returns seconds since the epoch."""
        super().__init__()
        self.run = run
        self._reader = RunReader(run, feed or JournalFeed(run), clock)
        self._resumer = resumer
        self._asked_to_stop = False
        """Whether this attempt was asked to stop; it may not have confirmed yet."""
        self._asked_to_leave_at = -math.inf
        self._resuming = False
        self._source = RunSource(self._reader)
        self._panels = {name: panel.make(self._reader, self._source) for name, panel in PANELS.items()}
        self._covering: MetricsGrid | ProfileScreen | None = None
        self._pages = Pages()
        self._held: frozenset[Topic] = frozenset()
        """The parts that changed while the grid, or the profile, covered the screen."""
        self._put_off = 0
        self._arranged: Arrangement | None = None
        self._attempt = 0
        self._offered = (False, False, False)
        """Whether the run is live, whether it waits in a queue, and whether it can be resumed, as the footer has it."""

    @property
    def MANUAL(self) -> str:
        """The page about scripts for one that has reported nothing."""
        return "scripts" if self.state.is_script and not self.state.curves.names else "run"

    @property
    def charts(self) -> RunCharts:
        return self.query_one(RunCharts)

    @property
    def state(self) -> RunState:
        return self._reader.state

    @property
    def replayed(self) -> bool:
        return self._reader.replay is not None

    @property
    def is_live(self) -> bool:
        """Whether the run continues, as far as is known; False for a replay."""
        return self.state.is_live and self._reader.replay is None

    def compose(self) -> ComposeResult:
        yield RunHeader(id="header")
        yield ReplayBar(id="replay")
        yield AlertStrip(id="alert")
        yield PanelTabs(id="tabs")
        with Vertical(id="body"):
            yield from self._panels_in("body")
            with Horizontal(id="middle"):
                yield from self._panels_in("middle")
            with Horizontal(id="lower"):
                yield from self._panels_in("lower")
        yield SteadyFooter("copy_path", "next_rank", "chart('metric')", "grid", "search")

    def _panels_in(self, container: str) -> Iterator[Widget]:
        for name, panel in sorted(PANELS.items(), key=lambda row: row[1].order):
            if panel.inside == container:
                widget: Widget = self._panels[name]
                if widget.id is None:
                    # The charts have a panel of that name themselves.
                    widget.id = name
                    widget.add_class("panel")
                yield widget

    async def on_mount(self) -> None:
        for number, name in enumerate(PANELS, start=1):
            self.query_one(f"#{name}").border_title = Content(f"{number} {name}")
        self.arrange_panels()
        self.query_one(ReplayBar).display = self._reader.replay is not None
        self._reader.start()
        self.call_later(self._show, await self._reader.read_soon(FOLD_BUDGET_S, FIRST_PICTURE_S))

    def on_unmount(self) -> None:
        self._reader.close()

    def on_resize(self) -> None:
        self.single = self.size.width < LEAST_WIDTH or self.size.height < LEAST_HEIGHT
        self.arrange_panels()

    def _take(self) -> None:
        """Folds new events for a bounded time, unless a key is being answered."""
        if getattr(self.app, "is_answering", False) and self._put_off < MAX_DEFERRALS:
            self._put_off += 1
            self.set_timer(CATCH_UP_S, self._take)
            return
        self._put_off = 0
        self._show(self._reader.read(FOLD_BUDGET_S))

    def _show(self, reading: Reading) -> None:
        if reading.topics:
            self._show_topics(reading.topics)
        if replay := self._reader.replay:
            self.query_one(ReplayBar).show(
                speed=replay.speed, paused=replay.paused, position=replay.position, duration=replay.duration
            )
        self.set_timer(CATCH_UP_S if reading.has_more else TICK_S, self._take)

    def on_screen_resume(self) -> None:
        """Shows what changed while another screen covered this one."""
        self._covering = None
        held, self._held = self._held, frozenset()
        if held:
            self._show_topics(held)

    def _show_topics(self, topics: frozenset[Topic]) -> None:
        if self._covering is not None:
            self._held |= topics
            self._covering.follow(topics)
            return
        state, now = self.state, self._reader.now
        if "run" in topics:
            self._notice_attempt()
            if (offered := (state.is_live, state.status == "queued", not refusal(state))) != self._offered:
                self._offered = offered
                self.refresh_bindings()
        for name, panel in PANELS.items():
            if panel.topic in topics:
                self._panels[name].show(state)
        if "alerts" in topics:
            self.query_one(AlertStrip).show(state)
        if "run" in topics:
            # The charts know what it is best by.
            self.query_one(RunHeader).show(state, now, self.charts.objective)
        if topics - {"run", "curves"}:
            self.arrange_panels()

    def _notice_attempt(self) -> None:
        """A resumed run can be stopped again; the chosen rank may no longer exist."""
        attempt = self.state.started.attempt if self.state.started else 0
        if attempt == self._attempt:
            return
        self._attempt, self._asked_to_stop = attempt, False
        log = self.query_one(LogView)
        if self.state.ranks and log.rank is not None and log.rank not in self.state.ranks:
            self.choose_rank(None)

    def watch_single(self) -> None:
        self.arrange_panels()

    def watch_chosen(self) -> None:
        self.arrange_panels()

    @on(NodeScroll.Folded)
    def arrange_panels(self) -> None:
        if not self.children:
            return
        names = tuple(name for name, panel in PANELS.items() if panel.exists(self.state))
        wide = self.size.width >= WIDE
        alone = is_alone(self.state)
        middle, lower = heights(self, self.state, wide=wide)
        arranged = Arrangement(names, self.state.fault, self.chosen, self.single, alone, middle, lower, wide)
        # Setting a screen's classes restyles all its widgets.
        if arranged != self._arranged:
            self._arranged = arranged
            arrange(self, arranged)

    @on(PanelTabs.Chosen)
    def _choose_tab(self, event: PanelTabs.Chosen) -> None:
        if self._arranged:
            self.chosen = self._arranged.names[event.index]

    def action_panel(self, name: str) -> None:
        if not PANELS[name].exists(self.state):
            self.notify(PANELS[name].nothing)
            return
        closes = self.chosen == name and not self.single
        self.show_panel(name)
        if closes:
            self.chosen = ""

    def jump_targets(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The panels shown; one that is alone has tabs above it."""
        if self.single:
            return []
        shown = {name: self.query_one(f"#{name}", Widget).region for name in PANELS}
        return [(region.offset, partial(self.action_panel, name)) for name, region in shown.items() if region]

    def show_panel(self, name: str) -> None:
        """Makes a panel large, with the focus."""
        self.chosen = name
        if name == "media" and self.charts.cursor_step is not None:
            self.query_one(MediaPanel).step = self.charts.cursor_step
        panel = self.query_one(f"#{name}", Widget)
        # So that the arrow keys scroll it.
        if target := next((widget for widget in (panel, *panel.query("*")) if widget.focusable), None):
            target.focus(scroll_visible=False)

    async def action_devices(self) -> None:
        """Shows the devices of all nodes, or of this machine where the run is on one."""
        if self.state.nodes:
            self.show_panel("devices")
        else:
            await self.run_action("app.devices")

    def action_back(self) -> None:
        """Closes the search, else the cursor, else the large panel, else the screen, of a live run when repeated."""
        log, media = self.query_one(LogView), self.query_one(MediaPanel)
        if (
            (log.display and log.close_search())
            or self.charts.close_cursor()
            or (media.display and media.step is not None)
        ):
            media.step = None
            return
        if self.chosen and not self.single:
            self.chosen = ""
        elif len(self.app.screen_stack) > 1:
            if self.is_live and time.monotonic() - self._asked_to_leave_at > self.app.NOTIFICATION_TIMEOUT:
                self._asked_to_leave_at = time.monotonic()
                self.notify("Esc again goes back. The run continues.")
            else:
                self.dismiss()

    def action_chart(self, what: str) -> None:
        if what in PAGES and self.query_one(MediaPanel).display:
            self._page(MediaPanel.Paged(PAGES[what]))
        else:
            self.charts.do(what)

    @on(MediaPanel.Paged)
    def _page(self, event: MediaPanel.Paged) -> None:
        """Goes to other pictures, and the charts' cursor with them."""
        panel = self.query_one(MediaPanel)
        panel.page(event.by)
        self.charts.point_at(panel.step)

    def action_grid(self) -> None:
        # Imported here: its parts must not delay the screen's first picture.
        from tuiapp.screens.metrics_grid import MetricsGrid

        show_devices = partial(self.show_panel, "devices") if self.state.nodes else None
        self._covering = MetricsGrid(
            self._source,
            self.charts.main.options,
            self._pages,
            objective=self.charts.objective,
            pins=self.charts,
            show_devices=show_devices,
        )
        self.app.clear_notifications()
        self.app.push_screen(self._covering)

    def action_profile(self) -> None:
        from tuiapp.screens.profile import ProfileScreen

        self._covering = ProfileScreen(self.run, lambda: self.state, self._why_no_profile)
        self.app.clear_notifications()
        self.app.push_screen(self._covering)

    def _why_no_profile(self) -> str:
        """Says why no step can be profiled now."""
        status = "replayed" if self.replayed else self.state.status
        return profile.refusal(status, str(self.state.config.get("backend", "")))

    def action_next_rank(self) -> None:
        rank = self.query_one(LogView).rank
        if not self.state.ranks:
            self.notify("No rank has reported yet.")
        ranks = [None, *sorted(self.state.ranks)]
        index = ranks.index(rank) if rank in ranks else 0
        self.choose_rank(ranks[(index + 1) % len(ranks)])

    def choose_rank(self, rank: int | None) -> None:
        self.query_one(LogView).rank = self.query_one(RankTable).chosen = rank
        self._source.rank = rank
        self.charts.redraw()

    @on(RankTable.Chosen)
    def _choose_row(self, event: RankTable.Chosen) -> None:
        self.choose_rank(None if event.rank == self.query_one(LogView).rank else event.rank)

    def action_sort_ranks(self) -> None:
        if self.chosen == "devices":
            self.query_one(DevicePanel).sort_by_next()
        elif len(self.state.ranks) < 2:
            self.notify("There is one rank: nothing to sort." if self.state.ranks else "No rank has reported yet.")
        else:
            self.query_one(RankTable).sort_by_next()

    def action_stream(self) -> None:
        self._open_log().next_stream()

    def action_find(self, by: int) -> None:
        self._open_log().find(by)

    def _open_log(self) -> LogView:
        """Makes the log large where it is hidden."""
        log = self.query_one(LogView)
        if not log.display:
            self.chosen = "log"
        return log

    def action_dismiss_alert(self) -> None:
        if not self.query_one(AlertStrip).display:
            self.notify("There is no alert.")
        self.query_one(AlertStrip).dismiss()

    def action_follow(self) -> None:
        self._open_log().toggle_follow()

    def action_search(self) -> None:
        self._open_log().open_search()

    def why_not(self, action: str, *parameters: object) -> str:
        """Says what a key lacks that does not apply to the run now, or not to a replay."""
        state = self.state
        if action == "replay":
            return "" if self.replayed else "Only a replay is steered. To replay a run: g, then p."
        if action in ("stop", "checkpoint"):
            if self.replayed:
                return "This is a replay: the run itself takes no commands here."
            return stop.refusal(state) if action == "stop" else checkpoint.refusal(state)
        if action in OF_ENDED and state.is_live:
            return f"The run has not ended. {OF_ENDED[action]}"
        if action == "resume":
            return "It is being resumed." if self._resuming else refusal(state)
        return ""

    def action_replay(self, what: str) -> None:
        replay = self._reader.replay
        if replay is not None:
            steer(replay, what)

    @on(ReplayBar.Sought)
    def _seek(self, event: ReplayBar.Sought) -> None:
        if replay := self._reader.replay:
            replay.seek(event.fraction * replay.duration)

    @work(exclusive=True, group="ask")
    async def action_about(self) -> None:
        # Imported here: it must not delay the screen's first picture.
        from tuiapp.screens.about_dialog import ask_about

        if await ask_about(self.app, self.run, script_name=self.state.facts.name):
            self._reader.refresh_about()

    @work(exclusive=True, group="control")
    async def action_checkpoint(self) -> None:
        await perform(self.app, checkpoint.do, self.run)

    @work(exclusive=True, group="control")
    async def action_stop(self) -> None:
        again = self.state.stop_requested is not None or self._asked_to_stop
        stoppable = [stop.Stoppable.of_state(self.run, self.state)]
        if await ask_stop(self.app, stoppable, lambda _: self.state.is_live, again=again):
            self._asked_to_stop = True

    @work(exclusive=True, group="control")
    async def action_export(self) -> None:
        await ask_export(self.app, [self.run])

    @work(exclusive=True, group="control")
    async def action_report(self) -> None:
        await ask_report(self.app, [await patiently(self.app, in_thread(summarise, self.run))])

    def action_compare(self) -> None:
        self.post_message(CompareWith(self.run))

    @work(exclusive=True, group="control")
    async def action_again(self) -> None:
        try:
            self.post_message(CloneRun(self.run, await patiently(self.app, in_thread(configuration, self.run))))
        except ActionError as error:
            tell(self.app, str(error), "error")

    def action_copy_path(self) -> None:
        copy_path(self.app, self.run)

    @work(exclusive=True, group="control")
    async def action_resume(self) -> None:
        state, title = self.state, join_words([self.state.name, sanitize(self.run.run_id)])
        find = partial(resumable, self.run, title, state.status, state.resume_step, state.step, script=state.is_script)
        try:
            await ask_resume(self.app, lambda: ([find()], []), self._resumer, self._begin_to_resume)
        finally:
            self._resuming = False
            self.refresh_bindings()

    def _begin_to_resume(self) -> bool:
        self._resuming = not refusal(self.state)
        self.refresh_bindings()
        return self._resuming
