"""Study: the trials of a sweep, the best on top, and the objective against each swept key, live."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from tuiapp.feeds.runs_feed import RunsFeed
from tuiapp.library.in_thread import in_thread
from tuiapp.library.presets import of_run
from tuiapp.screens.preset_dialogs import confirm_save
from tuiapp.screens.requests import OpenRun
from tuiapp.terminal.textual_fixes import CoveredScreenFix
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.experiments.study import StudyDir, StudyError
from tuiapp.trainers.state.signs import SIGNS
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.view.groups import arrange, grouped, listed
from tuiapp.view.run_list import BY_NAME, column_of
from tuiapp.view.run_list import state as state_words
from tuiapp.view.run_values import key_column
from tuiapp.view.study import StudyState, draw_slice, heading, importance_of, is_pruned, ranked_rows, read_study_state
from tuiapp.view.table import Column
from tuiapp.widgets.run_table import RunTable
from tuiapp.widgets.steady_footer import SteadyFooter

TICK_S = 0.2
SLICE_CELLS = 38
"""Least width of a slice: as many are beside each other as fit."""
SLICE_SHARE = 5
"""A slice has at least one line for every so many lines of the screen."""
FRAME_ROWS = 8
"""Rows of the headings, the slices' axis and the footer."""

PRUNED_WORDS = f"{SIGNS['stopped'].symbol} pruned"


class StudyScreen(CoveredScreenFix[None]):
    CSS_PATH = "study.tcss"
    MANUAL = "sweeps"

    AUTO_FOCUS: ClassVar[str | None] = "RunTable"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", tooltip="Open the trial's run", id="study.open"),
        Binding(
            "right,tab",
            "turn(1)",
            "Next keys",
            tooltip="Draw the next keys",
            key_display="→",
            priority=True,
            id="study.next",
        ),
        Binding("ctrl+s", "save", "Save", tooltip="Save it as a preset", id="study.save"),
        Binding("left,shift+tab", "turn(-1)", "Previous keys", priority=True, id="study.previous", show=False),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", tooltip="List the keys", id="app.help"),
        Binding("escape,T", "dismiss", "Back", key_display="esc", id="study.back"),
        Binding("q", "app.quit", "Quit", tooltip="Quit tuiapp", id="app.quit-letter", show=False),
    ]

    def __init__(self, runs_dir: Path, name: str, lister: RunsFeed | None = None) -> None:
        super().__init__()
        self._place = StudyDir(runs_dir, name)
        self._lister = lister or RunsFeed(runs_dir)
        self._state: StudyState | None = None
        self._first = 0
        """Number of the key that is drawn at the left."""
        self._by, self._reverse = "", False
        """The column by which the table is sorted; "" for the best first."""
        self._open = set[str]()
        """Keys of the groups, of runs that differ in their seed alone, that are open."""
        self._importance: Mapping[str, float] = {}
        self._weighed = 0
        """How many trials had ended when the importance was worked out."""

    def compose(self) -> ComposeResult:
        yield Static(f"{self._place.name} · reading …", id="heading", markup=False)
        yield RunTable()
        yield Horizontal(id="slices")
        yield SteadyFooter("turn(1)")

    def on_mount(self) -> None:
        self._lister.start()
        self.set_interval(TICK_S, self._take)

    def on_unmount(self) -> None:
        self._lister.close()

    def on_screen_resume(self) -> None:
        """Shows at once what changed while another screen was on top."""
        self._lister.poll_now()

    def _take(self) -> None:
        listing = self._lister.take()
        if listing is None or not listing.complete:
            return
        infos = [info for info in listing.infos if info.about.group == self._place.name]
        try:
            self._state = read_study_state(self._place, infos)
        except StudyError as error:
            self.query_one("#heading", Static).update(Content(str(error)))
            return
        self._show(self._state)

    def _show(self, state: StudyState) -> None:
        self.query_one("#heading", Static).update(Content(heading(state)))
        columns = _columns(state)
        rows = ranked_rows(state)
        best: dict[RunDir | str, str] = {listed(rows, lambda _: False)[0].id: "★"} if state.best else {}
        by = next((column for column in columns if column.name == self._by), columns[1 if state.objective else 0])
        if self._by:
            infos = [trial.info for trial in state.trials]
            rows = arrange(infos, by, reverse=self._reverse, live_first=False)
        shown = listed(rows, lambda group: group.key in self._open)
        drawn = [grouped(column, shown) for column in columns]
        self.query_one(RunTable).show(shown, drawn, by.name, reverse=self._reverse, stars=best)
        self.call_later(self._draw)
        if state.ended_trials != self._weighed:
            self._weighed = state.ended_trials
            self.refresh_bindings()
            self.run_worker(self._weigh(state), exclusive=True, group="weigh")

    async def _weigh(self, state: StudyState) -> None:
        """Works out how much each key matters, in a thread: it imports Optuna."""
        self._importance = await asyncio.wrap_future(in_thread(importance_of, state))
        # Not here, beside a drawing that is under way.
        self.call_later(self._draw)

    async def on_resize(self) -> None:
        await self._draw()

    async def _draw(self) -> None:
        """Draws the objective against as many keys as there is room for."""
        if (state := self._state) is None or not self.is_mounted:
            return
        slices = self.query_one("#slices", Horizontal)
        keys = state.drawn_keys
        count = min(len(keys), max(1, self.size.width // SLICE_CELLS))
        shown = [keys[(self._first + number) % len(keys)] for number in range(count)]
        drawn = slices.query(Static)
        if len(drawn) != count:
            await drawn.remove()
            await slices.mount_all(Static(classes="slice") for _ in shown)
        width = (self.size.width - 2) // max(1, count) - 3
        height = self.size.height
        left_over = height - len(self.query_one(RunTable).rows) - FRAME_ROWS
        rows = max(height // SLICE_SHARE + 1, left_over)
        for key, panel in zip(shown, slices.query(Static), strict=True):
            panel.update(Content("\n".join(draw_slice(state, key, width, rows, self._importance.get(key)))))

    @on(RunTable.GroupTurned)
    def _turn_group(self, event: RunTable.GroupTurned) -> None:
        if self._state and event.is_open != (event.group.key in self._open):
            self._open ^= {event.group.key}
            self._show(self._state)

    @on(RunTable.ColumnChosen)
    def _sort(self, event: RunTable.ColumnChosen) -> None:
        """Sorts by a column; by the same again the other way round."""
        self._by, self._reverse = event.name, event.name == self._by and not self._reverse
        if self._state:
            self._show(self._state)

    @on(RunTable.RunChosen)
    def action_open(self) -> None:
        row = self.query_one(RunTable).row
        if row and row.group and self._state:
            self._open ^= {row.group.key}
            self._show(self._state)
        elif row:
            self.post_message(OpenRun(row.infos[0].directory))

    @work(group="ask")
    async def action_save(self) -> None:
        """Saves the configuration under the cursor, which is the best at first, as a preset."""
        row = self.query_one(RunTable).row
        if row is None or (config := row.infos[0].config) is None:
            self.notify("No configuration is known here.", severity="error")
        else:
            await confirm_save(self.app, of_run(config), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves the keys that turn to the table while all that can be drawn is."""
        return action != "turn" or bool(self._state and len(self._state.drawn_keys) > self.size.width // SLICE_CELLS)

    async def action_turn(self, by: int) -> None:
        if self._state and self._state.drawn_keys:
            self._first = (self._first + by) % len(self._state.drawn_keys)
            await self._draw()


def _columns(state: StudyState) -> list[Column[RunInfo]]:
    """Returns the columns of the table: what trials differ in, and what they came to."""
    keys = [key_column(key, rank=2) for key in state.keys]
    objective = [column_of(state.objective.sort)] if state.objective else []
    standing = replace(BY_NAME["state"], cell=lambda info: PRUNED_WORDS if is_pruned(info) else state_words(info))
    return [standing, *objective, *keys, BY_NAME["steps"], BY_NAME["took"], replace(BY_NAME["run"], rank=20)]
