"""Runs: all runs of a directory, to open, compare and resume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, Static

from tuiapp.actions import annotate, compact, delete, queue, stop
from tuiapp.actions import resume as resuming
from tuiapp.actions.action import ActionError, Outcome, no_configuration, unreadable
from tuiapp.actions.resume import Resumer
from tuiapp.actions.stop import Stoppable
from tuiapp.feeds.runs_feed import Listing, RunsFeed
from tuiapp.library.chart_view import MOST_NAMES
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.about_dialog import ask_about
from tuiapp.screens.acting import ask_export, ask_report, ask_resume, ask_stop, copy_path, perform, tell
from tuiapp.screens.chart_grid import ChartMemory
from tuiapp.screens.details import detail_lines
from tuiapp.screens.dialog import Choice
from tuiapp.screens.keys import RefusingScreen
from tuiapp.screens.pickers import ColumnPicker, MetricList, Picked, columns_to_pick
from tuiapp.screens.requests import CloneRun, CompareRuns, OpenRun, OpenStudy
from tuiapp.screens.workspace import Charted, Workspace
from tuiapp.terminal.slow_disk import patiently
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import Change
from tuiapp.trainers.launch import resume
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.objective import Objective, Objectives, guess, objective_names
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import join_words, plural, sanitize_lines
from tuiapp.view.comparison import MOST, against, compared, row_name
from tuiapp.view.groups import (
    MOST_CELLS,
    NARROW_CELLS,
    ListRow,
    Row,
    RunGroup,
    alike,
    are_alike,
    arrange,
    grouped,
    listed,
    refreshed,
    runs_of,
    stars,
)
from tuiapp.view.marks import BAND, LETTERS, Places
from tuiapp.view.run_list import (
    BEST,
    COLUMNS,
    DISK,
    NEWEST,
    as_sorted,
    best_column,
    both_kinds,
    brief,
    choose,
    column_of,
    columns_of,
    compared_names,
    is_column,
    objectives_words,
    order,
    shared,
)
from tuiapp.view.run_values import CONFIG, GROUP
from tuiapp.view.table import Column
from tuiapp.widgets.colors import MUTED
from tuiapp.widgets.run_table import RunTable
from tuiapp.widgets.steady_footer import SteadyFooter
from tuiapp.widgets.text_view import TextView

TICK_S = 0.2
"""How often a new list is shown."""

LOOK_S = 0.005

FIRST_PICTURE_S = 0.1
"""How long the first picture waits for the list; before, it would be empty and as costly as the next."""

WIDE = 100
"""From this width on a group's row says whose result is the best."""

SORT_KEYS = [column.name for column in COLUMNS if column.name != "name"][:9]
"""Sort columns of the keys 1 to 9."""

OF_RUNS = frozenset(
    ("mark", "resume", "stop", "export", "report", "about", "compact", "delete", "copy_path", "compare")
)
"""Actions on the marked runs, or else on the run or the group under the cursor."""

OF_ONE_RUN = frozenset(("open", "replay", "clone", "baseline"))
"""Actions on the run under the cursor, whichever are marked."""

REFUSALS: dict[str, Callable[[RunInfo], str]] = {
    "stop": stop.refusal,
    "compact": compact.refusal,
    "delete": delete.refusal,
    "resume": resuming.refusal,
    "clone": no_configuration,
}


class RunsScreen(RefusingScreen[None]):
    CSS_PATH = "runs.tcss"
    MANUAL = "runs"

    AUTO_FOCUS: ClassVar[str | None] = "RunTable"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", tooltip="Open this run or group", id="runs.open"),
        Binding("x", "mark", "Mark", tooltip="Mark or unmark", id="runs.mark"),
        Binding("c", "compare", "Compare", tooltip="Compare marked runs", id="runs.compare"),
        Binding("a", "clone", "Run again", tooltip="Run again, by the form", id="runs.clone"),
        Binding("u", "resume", "Resume", tooltip="Resume, train longer", id="runs.resume"),
        Binding("s", "stop", "Stop", tooltip="Stop marked or this", id="runs.stop"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words", id="runs.filter"),
        Binding("C", "charts", "Charts", tooltip="Charts or not", id="runs.charts"),
        Binding("e", "export", "Export", tooltip="Export marked or this", id="runs.export", show=False),
        Binding("w", "report", "Report", tooltip="Report marked or this", id="runs.report", show=False),
        Binding("Z", "compact", "Compact", tooltip="Compact its journal", id="runs.compact", show=False),
        Binding(
            "d,delete",
            "delete",
            "Delete",
            key_display="d",
            tooltip="Delete marked or this",
            id="runs.delete",
            show=False,
        ),
        Binding("h", "hold", "Hold", tooltip="Hold or release", id="runs.hold", show=False),
        Binding("K,ctrl+up", "move(-1)", "Earlier", tooltip="Earlier in the queue", id="runs.earlier", show=False),
        Binding("J,ctrl+down", "move(1)", "Later", tooltip="Later in the queue", id="runs.later", show=False),
        Binding("b", "objective", "Best by", tooltip="Best by a metric", id="runs.best-by", show=False),
        Binding("T", "study", "Its study", tooltip="Open its study", id="runs.study", show=False),
        Binding("z", "fold", "Fold groups", tooltip="Fold or unfold groups", id="runs.fold", show=False),
        Binding("B", "baseline", "Baseline", tooltip="This as the baseline", id="runs.baseline", show=False),
        Binding("F", "columns", "Columns", tooltip="Choose the columns", id="runs.columns", show=False),
        Binding(
            "i",
            "about",
            "Name, tags, note",
            tooltip="Name, tags and note",
            id="runs.about",
            show=False,
        ),
        Binding("V", "accept", "Accept", tooltip="Accept what mars it", id="runs.accept", show=False),
        Binding("p", "replay", "Replay", tooltip="Replay this run", id="runs.replay", show=False),
        Binding("ctrl+y", "copy_path", "Copy the paths", id="runs.copy", show=False),
        Binding("X", "unmark", "Unmark all", id="runs.unmark", show=False),
        Binding("o", "next_sort", "Sort by next column", id="runs.sort", show=False),
        Binding("O", "reverse", "Reverse the order", id="runs.reverse", show=False),
        Binding("0", "sort('name')", "Sort by name", id="runs.sort-name", show=False),
        *(
            Binding(str(key), f"sort('{name}')", f"Sort by {name}", id=f"runs.sort-{name}", show=False)
            for key, name in enumerate(SORT_KEYS, start=1)
        ),
        Binding("question_mark", "app.toggle_help", "Keys", key_display="?", tooltip="List the keys", id="app.help"),
        Binding("escape,ctrl+g", "back", "Back", key_display="esc", id="runs.back"),
        Binding("q", "app.quit", "Quit", tooltip="Quit tuiapp", id="app.quit-letter", show=False),
    ]

    KEY_GROUPS: ClassVar[dict[str, Sequence[str]]] = {
        "What is listed": ("filter", "columns", "fold", "baseline", "objective", "charts"),
        "Its order": ("sort", "next_sort", "reverse"),
        "The queue": ("hold", "move"),
        "Elsewhere": ("study", "toggle_help", "back", "quit"),
    }

    def __init__(self, runs_dir: Path, lister: RunsFeed | None = None, resumer: Resumer = resume) -> None:
        super().__init__()
        self._runs_dir = runs_dir
        self._lister = lister or RunsFeed(runs_dir)
        self._resumer = resumer
        self._listing: Listing | None = None
        self._shown: list[RunInfo] = []
        self._listed: Sequence[ListRow] = ()
        """The rows of the list."""
        self._marked: list[RunDir] = []
        """The marked runs, in the order in which they were marked."""
        self._places = Places()
        self._sorted: dict[RunDir, RunInfo] = {}
        """The listed runs as they were when they were sorted: what changes by itself moves no row."""
        self._is_left = False
        """Whether another screen than a dialog is on top."""
        self._columns = [NEWEST]
        """Names of the columns, whether or not there is room for them."""
        self._memory = ChartMemory(self, title="Runs")
        view = self._memory.view
        self._chosen_sort = (view.sort, view.reverse) if is_column(view.sort) else ("", False)
        self._by, self._reverse = column_of(self._chosen_sort[0] or NEWEST), self._chosen_sort[1]
        self._picked = Picked(tuple(filter(is_column, view.added)), tuple(filter(is_column, view.removed)))
        self._opened = list(view.opened)
        """Keys of the groups that are open while the others are folded."""
        self._chosen_objective = Objective(view.objective, view.rises)
        self._objectives = Objectives({})
        """The objectives of the listed runs."""
        self._stopping: set[RunDir] = set()
        self._offered: frozenset[str] = frozenset()

    @property
    def current(self) -> RunInfo | None:
        return self.query_one(RunTable).current

    def compose(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Input(placeholder="all of: failed resnet18 lr<0.01 test/accuracy>0.9 tag:sweep …", id="filter")
        yield Workspace(Static(id="instead", markup=False), RunTable())
        yield TextView(id="details")
        yield SteadyFooter("clone", "filter", "resume")

    async def on_mount(self) -> None:
        self._memory.begin()
        self.query_one("#filter").display = False
        self._lister.start()
        until = time.monotonic() + FIRST_PICTURE_S
        while self._listing is None and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            self._take()
        if self._listing is None:
            self._show()
        self.set_interval(TICK_S, self._take)

    def on_unmount(self) -> None:
        self._lister.close()
        self._memory.close()

    def on_screen_suspend(self) -> None:
        self._is_left = not self.app.screen.is_modal

    def on_screen_resume(self) -> None:
        """Shows at once what changed while another screen was on top."""
        if self._is_left:
            self._sorted.clear()
            self._show()
        self._lister.poll_now()

    def _take(self) -> None:
        if (listing := self._lister.take()) is not None:
            was_complete = self._listing is not None and self._listing.complete
            self._listing = listing
            live = {info.directory: info.is_live for info in listing.infos}
            if listing.complete:
                self._marked = [run for run in self._marked if run in live]
                self._stopping = {run for run in self._stopping if live.get(run)}
            self._show(anew=not was_complete)

    def _show(self, *, anew: bool = False) -> None:
        """Lists the runs, sorted `anew`, or else as they are, new ones at the place that the order gives."""
        listing, text = self._listing, self.query_one("#filter", Input).value
        infos = listing.infos if listing else []
        self._shown = choose(infos, text)
        chosen = self._chosen_objective
        self._objectives = Objectives.of_runs(self._shown, chosen.name, rises=chosen.rises)
        best = best_column(self._objectives)
        needed = {self._chosen_sort[0], *self._picked.added, *compared_names(text)}
        if not self._lister.measures and DISK in needed:
            self._lister.measures = True
            self._lister.poll_now()
        if anew or not self._sorted:
            self._sorted.clear()
            self._by, self._reverse = self._sort(best)
        rows = self._arranged(self._shown)
        shown = self._listed = listed(rows, lambda group: group.key in self._opened)
        self._shown = [info for row in rows for info in runs_of(row)]
        instead = _instead_of_table(listing, len(shown), self._runs_dir)
        table = self.query_one(RunTable)
        baseline = next((info for info in infos if str(info.directory.path) == self._memory.view.baseline), None)
        columns = self._columns_for(rows, best, baseline)
        self._columns = [column.name for column in columns]
        stars_of = dict[RunDir | str, str]()
        for objective in self._objectives.distinct:
            of_kind = [row for row in rows if self._objectives.of(runs_of(row)[0]) == objective]
            listed_ones = [row for row in shown if self._objectives.of(row.infos[0]) == objective]
            stars_of |= stars(of_kind, listed_ones, objective)
        most = MOST_CELLS if self.size.width >= WIDE else NARROW_CELLS
        table.show(
            shown,
            [grouped(against(column, baseline) if baseline else column, shown, most) for column in columns],
            self._by.name,
            reverse=self._reverse,
            stars=stars_of,
            baseline=baseline.directory if baseline else None,
        )
        table.display = not instead
        placeholder = self.query_one("#instead", Static)
        placeholder.display = bool(instead)
        placeholder.set_class(bool(listing and listing.problem), "-wrong")
        placeholder.update(instead, layout=False)
        sort = f"sorted by {self._by.title}{', reversed' if self._reverse else ''}"
        star = f"★ {objectives_words(self._objectives, self._shown)}" if "★" in stars_of.values() else ""
        pinned = f"= baseline {brief(baseline)}" if baseline else ""
        notes = join_words([*both_kinds(compared_names(text), infos), star, pinned])
        heading = _heading(listing, self._shown, len(self._marked), notes, sort)
        self.query_one("#heading", Static).update(heading, layout=False)
        self._show_current()

    def _sort(self, best: Column[RunInfo] | None) -> tuple[Column[RunInfo], bool]:
        """Returns what to sort by and whether that is reversed: as the user chose, or else for the best to be first."""
        by, reverse = self._chosen_sort
        if by:
            return column_of(by), reverse
        is_known = any(
            objective.best(info for info in self._shown if self._objectives.of(info) == objective)
            for objective in self._objectives.distinct
        )
        return best if best and is_known else column_of(NEWEST), reverse

    def _arranged(self, infos: list[RunInfo]) -> list[Row]:
        """Returns runs in their order, in groups if these are folded."""
        # What the user sorts by counts for live ones, too.
        arranged: Callable[..., Sequence[Row]] = arrange if self._memory.view.folded else order
        now = {info.directory: info for info in infos}
        self._sorted = {run: as_sorted(info, self._sorted.get(run, info)) for run, info in now.items()}
        by, reverse, live_first = self._by, self._reverse, not self._chosen_sort[0]
        return [
            refreshed(row, now)
            for row in arranged([*self._sorted.values()], by, reverse=reverse, live_first=live_first)
        ]

    def _columns_for(
        self, rows: Sequence[Row], best: Column[RunInfo] | None, baseline: RunInfo | None
    ) -> list[Column[RunInfo]]:
        """Returns the columns that tell the runs apart, from the baseline too, and what they are sorted and best by."""
        added, removed = self._picked
        if any(isinstance(row, RunGroup) and row.name for row in rows):
            # The rows have the groups' names.
            added, removed = (*added, *({"name"} - {*removed})), (*removed, *({CONFIG + GROUP} - {*added}))
        told_apart = self._shown if baseline is None or baseline in self._shown else [*self._shown, baseline]
        # An accuracy is what they are best by, too.
        further = [best] if best and best.title != self._by.title else []
        return columns_of(told_apart, added, removed, first=[self._by, *further])

    @on(RunTable.CursorMoved)
    def _show_current(self) -> None:
        row = self.query_one(RunTable).row
        details = partial(detail_lines, row, self._objectives.of(row.infos[0]) if row else None)
        self.query_one("#details", TextView).update(details)
        self._chart()
        offered = frozenset(action for action in OF_RUNS | OF_ONE_RUN if not self.why_not(action))
        if offered != self._offered:
            # The footer is rebuilt each time: not for every row that the cursor passes.
            self._offered = offered
            self.refresh_bindings()

    def why_not(self, action: str, *parameters: object) -> str:
        """Says why an action cannot be done with what is marked, or else is under the cursor."""
        if action not in OF_RUNS | OF_ONE_RUN:
            return ""
        row = self.query_one(RunTable).row if self.is_mounted else None
        if row is None:
            return "No run is listed."
        if action in OF_ONE_RUN:
            if row.info is None:
                return "" if action == "open" else "Of one run alone. Enter opens the group."
            return _refusal(row.info, action)
        # Which of the marked ones still go on, and cannot be deleted, is said when that is asked.
        if action == "delete" and self._marked:
            return ""
        refusals = [_refusal(info, action) for info in self._chosen]
        if not all(refusals):
            return ""
        return refusals[0] if len(refusals) == 1 else f"Of none of these {len(refusals)} runs. The first: {refusals[0]}"

    @on(RunTable.RunChosen)
    def action_open(self) -> None:
        """Opens the run under the cursor, or opens or closes the group."""
        row = self.query_one(RunTable).row
        if row and row.group:
            self._turn(RunTable.GroupTurned(row.group, not row.is_open))
        else:
            self._open()

    @on(RunTable.GroupTurned)
    def _turn(self, event: RunTable.GroupTurned) -> None:
        self._opened = [key for key in self._opened if key != event.group.key]
        if event.is_open:
            self._opened.append(event.group.key)
        self._memory.keep(opened=tuple(self._opened[-MOST_NAMES:]))
        self._show()

    def action_fold(self) -> None:
        """Makes each group one row, or lists all runs."""
        self._memory.keep(folded=not self._memory.view.folded)
        self._show(anew=True)
        if self._memory.view.folded and not any(row.group for row in self.query_one(RunTable).rows):
            self.notify("No runs have the same group, or differ in their seed alone.")

    def action_baseline(self) -> None:
        """Makes the run under the cursor the one that others are compared with, or if it is that, none."""
        if info := self.current:
            path = str(info.directory.path)
            self._memory.keep(baseline="" if path == self._memory.view.baseline else path)
            self._show()

    def action_replay(self) -> None:
        self._open(replay=True)

    def _open(self, *, replay: bool = False) -> None:
        if info := self.current:
            self.post_message(OpenRun(info.directory, replay=replay))

    def action_mark(self) -> None:
        """Marks or unmarks the run under the cursor, or all runs of the group."""
        if (row := self.query_one(RunTable).row) is None:
            return
        runs = [info.directory for info in row.infos]
        if not (unmarked := [run for run in runs if run not in self._marked]):
            self._marked = [run for run in self._marked if run not in runs]
        else:
            self._marked += unmarked
        self._show()

    def mark_alone(self, run: RunDir) -> None:
        """Marks the run that another one is to be compared with."""
        self._marked = [run]
        if self.is_mounted:
            self._show()
        self.notify("Go to another run; c compares the two.")

    def action_unmark(self) -> None:
        if not self._marked:
            self.notify("No run is marked. x marks one.")
        self._marked.clear()
        self._show()

    def action_compare(self) -> None:
        """Compares the marked runs, or the group's; with one marked, that one and the one under the cursor."""
        runs = self._chosen
        if len(self._marked) == 1 and (info := self.current) and info.directory not in self._marked:
            runs.append(info)
        if len(runs) < 2:
            self.notify("Mark two or more runs with x, then compare them.")
        elif (rows := len(compared(runs))) > MOST:
            self.notify(f"{rows} runs and groups; at most {MOST} can be compared.", severity="warning")
        else:
            self.post_message(CompareRuns(tuple(runs)))

    def action_clone(self) -> None:
        if (info := self.current) and info.config:
            self.post_message(CloneRun(info.directory, info.config))

    @work(exclusive=True, group="ask")
    async def action_stop(self) -> None:
        """Stops the marked runs, or else what is under the cursor, after asking."""
        chosen = self._chosen
        live = [info for info in chosen if info.is_live]
        # Those that were asked before are stopped at once if all were, and else left alone.
        again = all(info.directory in self._stopping for info in live)
        asked = [Stoppable.of_info(info) for info in live if again or info.directory not in self._stopping]
        if not asked:
            self.notify("None of these runs is live.", severity="warning")
            return
        is_live = lambda run: run.liveness() is not Liveness.NOBODY  # noqa: E731
        left_alone = len(chosen) - len(asked)
        self._stopping |= {*await ask_stop(self.app, asked, is_live, again=again, others=left_alone)}

    def action_hold(self) -> None:
        """Holds what waits in the queue; releases it if all of it is held."""
        waits = queue.waiting(self._chosen)
        held = not all(info.waiting.held for info in waits if info.waiting)
        self._change_queue(waits, lambda: queue.hold([info.directory for info in waits], held=held))

    def action_move(self, by: int) -> None:
        """Moves what waits in the queue one place, the marked runs together."""
        waits = queue.waiting(self._chosen)
        places = [(info.directory, (info.place or 1) - 1 + by) for info in (waits if by < 0 else waits[::-1])]
        self._change_queue(waits, lambda: queue.move(places))

    @work(group="queue")
    async def _change_queue(self, waits: Sequence[RunInfo], do: Callable[[], Outcome]) -> None:
        if not waits:
            self.notify("Only runs that wait in the queue can be held or moved.")
            return
        await perform(self.app, do, meanwhile="")
        self._lister.poll_now()

    @work(exclusive=True, group="ask")
    async def action_resume(self) -> None:
        """Resumes the marked runs, or else what is under the cursor, after asking; opens a single one."""
        chosen = self._chosen
        resumed = await ask_resume(self.app, partial(resuming.find, chosen), self._resumer)
        if resumed and len(chosen) == 1:
            self.post_message(OpenRun(resumed[0]))
        elif resumed:
            self._lister.poll_now()

    @property
    def _chosen(self) -> list[RunInfo]:
        """The marked runs, in the order in which they were marked, or else what is under the cursor."""
        if self._marked and self._listing:
            infos = {info.directory: info for info in self._listing.infos}
            return [infos[run] for run in self._marked if run in infos]
        row = self.query_one(RunTable).row
        return list(row.infos) if row else []

    @work(exclusive=True, group="ask")
    async def action_export(self) -> None:
        """Exports the marked runs, or else the one under the cursor, after asking."""
        if chosen := self._chosen:
            await ask_export(self.app, [info.directory for info in chosen])

    @work(exclusive=True, group="ask")
    async def action_report(self) -> None:
        """Writes a report of the marked runs, or else of what is under the cursor, after asking where."""
        if chosen := self._chosen:
            await ask_report(self.app, chosen)

    @work(exclusive=True, group="ask")
    async def action_delete(self) -> None:
        """Deletes the marked runs, or else the one under the cursor, after asking."""
        chosen = self._chosen
        runs = [info.directory for info in chosen]
        try:
            await patiently(self.app, in_thread(delete.check, runs))
        except ActionError as error:
            tell(self.app, str(error), "warning")
            return
        if chosen and await self.app.push_screen_wait(Choice(*delete.question(chosen))) == "delete":
            await perform(self.app, delete.do, runs)
            self._lister.poll_now()

    @work(exclusive=True, group="ask")
    async def action_compact(self) -> None:
        """Compacts the journals of the marked runs, or else that of the one under the cursor, after asking."""
        runs = [info.directory for info in self._chosen]
        if runs and await self.app.push_screen_wait(Choice(*compact.question(runs))) == "compact":
            await perform(self.app, compact.do, runs, title="Compacted", meanwhile="Compacting…")
            self._lister.poll_now()

    @work(exclusive=True, group="ask")
    async def action_about(self) -> None:
        """Asks what the marked runs, or else what is under the cursor, are called; of several their group and tags."""
        chosen = self._chosen
        script_name = chosen[0].facts.name if len(chosen) == 1 else ""
        if chosen and await ask_about(self.app, *(info.directory for info in chosen), script_name=script_name):
            self._lister.poll_now()

    @work(group="about")
    async def action_accept(self) -> None:
        """Accepts the blemishes of the marked runs, or else of what is under the cursor: they are no longer shown."""
        marred = [info.directory for info in self._chosen if info.blemishes]
        if not marred:
            self.notify("Nothing mars this run.")
        await perform(self.app, annotate.do, marred, Change(), accepts=True, title="Saved")
        self._lister.poll_now()

    def action_study(self) -> None:
        if (row := self.query_one(RunTable).row) is None:
            self.notify("No run is listed.")
        elif group := row.infos[0].about.group:
            self.post_message(OpenStudy(group))
        else:
            self.notify("This run belongs to no study or group. i gives it one.")

    def action_copy_path(self) -> None:
        if chosen := self._chosen:
            copy_path(self.app, *(info.directory for info in chosen))

    def action_sort(self, name: str) -> None:
        # What differs with the kind of data is no choice: it is what they are best by.
        reverse = not self._reverse if self._by.name == name else False
        self._choose_sort("" if name == BEST else name, reverse=reverse)
        self._show(anew=True)
        self.query_one(RunTable).action_jump(0)

    def _choose_sort(self, name: str, *, reverse: bool) -> None:
        self._chosen_sort = (name, reverse)
        self._memory.keep(sort=name, reverse=reverse)

    def _chart(self) -> None:
        """Shows the curves of the marked runs, or else of the group or the run under the cursor, with their letters."""
        table, workspace = self.query_one(RunTable), self.query_one(Workspace)
        runs = self._marked or [info.directory for info in table.whole]
        together = self._together(runs)
        first = {run: part[0] for part in together for run in part}
        units = list(dict.fromkeys(first.get(run, run) for run in runs))
        left_out = 0
        if not self._marked and len(units) > len(LETTERS):
            # The first ones, and in any case what is under the cursor.
            under = [first.get(info.directory, info.directory) for info in table.row.infos] if table.row else []
            shown = {*units[: len(LETTERS)]}
            shown = shown if shown.intersection(under) else {*units[: len(LETTERS) - 1], *under[:1]}
            runs = [run for run in runs if first.get(run, run) in shown]
            left_out = len(table.whole) - len(runs)
        # What is not marked has no place of its own.
        places = (self._places if self._marked else Places()).of(runs, together)
        infos = {info.directory: info for info in (self._listing.infos if self._listing else ())}
        charted_infos = [infos[run] for run in runs if run in infos and (infos[run].is_readable or not self._marked)]
        groups = {places[part[0]]: row_name(group) for part, group in together.items() if part[0] in places}
        unlike = [BAND] if BAND in places.values() and not are_alike(charted_infos) else []
        groups |= {place: f"{plural(len(charted_infos), 'run')}, a line each" for place in unlike}
        objective = self._objectives.of(charted_infos[0]) if charted_infos else None
        name = objective.name if objective else ""
        charted = Charted(
            charted_infos, places, groups, unlike, name, left_out, is_open=any(row.is_open for row in table.rows)
        )
        workspace.chart(charted, at_once=bool(self._marked))
        has_letters = bool(self._marked) or (workspace.shows_charts and len({*places.values()}) > 1)
        table.mark(places if has_letters else {}, chosen=bool(self._marked))

    def _together(self, runs: Sequence[RunDir]) -> dict[tuple[RunDir, ...], RunGroup]:
        """Returns those of these runs that have a curve together: of a folded group that differ in their seed alone."""
        chosen, together = set(runs), dict[tuple[RunDir, ...], RunGroup]()
        folded = [row.group for row in self._listed if row.group and not row.is_open] if len(chosen) > 1 else []
        for group in chain.from_iterable(map(alike, folded)):
            members = [info for info in group.infos if info.directory in chosen]
            if len(members) > 1:
                # The same one is the first, however the list is sorted.
                by_id = sorted((info.directory for info in members), key=lambda run: run.run_id)
                together[tuple(by_id)] = replace(group, rows=tuple(members))
        return together

    async def action_charts(self) -> None:
        if not self._shown:
            self.notify("There are no runs to chart.")
        await self.query_one(Workspace).toggle()
        self._chart()

    @work(exclusive=True, group="ask")
    async def action_objective(self) -> None:
        """Asks what the best run is best by, and sorts by it; the same once more turns the direction round."""
        infos, row = self._listing.infos if self._listing else [], self.query_one(RunTable).row
        now = self._objectives.of(row.infos[0]) if row else None
        if not (names := objective_names(infos)):
            self.notify("No run has a result yet.")
            return
        drawn = now.name if now else ""
        suggested = f"as the runs suggest ({guess(infos) or 'nothing'})"
        title = "Best by · choose it again to turn it round"
        name = await self.app.push_screen_wait(MetricList(names, drawn, title=title, nothing=suggested))
        if name is None:
            return
        if now is not None and name == now.name:
            self._chosen_objective = now.turned
        else:
            self._chosen_objective = Objective(name, metric(name).rises)
        self._memory.keep(objective=name, rises=self._chosen_objective.rises)
        # Sorted by it, as by default.
        self._choose_sort("", reverse=False)
        self._show(anew=True)
        self.query_one(RunTable).action_jump(0)

    @work(exclusive=True, group="ask")
    async def action_columns(self) -> None:
        """Asks which columns to add to those that tell the listed runs apart, and which to remove."""
        infos = self._listing.infos if self._listing else []
        automatic = [column.name for column in columns_of(self._shown)]
        dialog = ColumnPicker(columns_to_pick(infos), automatic, self._picked)
        if (picked := await self.app.push_screen_wait(dialog)) is not None:
            self._picked = picked
            self._memory.keep(added=picked.added[-MOST_NAMES:], removed=picked.removed[-MOST_NAMES:])
            self._show()

    def action_next_sort(self) -> None:
        self.action_sort(self._columns[(self._columns.index(self._by.name) + 1) % len(self._columns)])

    def action_reverse(self) -> None:
        self.action_sort(self._by.name)

    @on(RunTable.ColumnChosen)
    def _sort_by_clicked(self, event: RunTable.ColumnChosen) -> None:
        self.action_sort(event.name)

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def filter_by(self, words: str) -> None:
        """Lists the runs that match these words, as soon as the screen is there."""

        def fill() -> None:
            box = self.query_one("#filter", Input)
            box.value, box.display = words, True

        self.call_after_refresh(fill)

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self._show(anew=True)

    @on(Input.Submitted, "#filter")
    def _to_table(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = bool(box.value)
        self.query_one(RunTable).focus()

    def action_back(self) -> None:
        box = self.query_one("#filter", Input)
        if box.display:
            box.value = ""
            box.display = False
            self.query_one(RunTable).focus()
        elif len(self.app.screen_stack) > 1:
            self.dismiss()


def _instead_of_table(listing: Listing | None, shown: int, runs_dir: Path) -> Content:
    """Returns the text shown in place of an empty table; empty if the table has rows."""
    if listing is None:
        text = f"Looking for runs in {runs_dir} …"
    elif listing.problem:
        text = f"✗ {listing.problem}"
    elif not listing.infos:
        text = "No runs yet.\nEscape opens the form; Ctrl+R there launches the first run."
    else:
        text = "" if shown else "No run matches all these words. Escape shows all."
    return Content("\n".join(sanitize_lines(text)))


def _heading(listing: Listing | None, infos: list[RunInfo], marked: int, star: str, sort: str) -> Content:
    heading = Content.styled("Runs", "bold $text-primary")
    if listing is None or not listing.infos:
        return heading
    count, shown = plural(len(listing.infos), "run"), len(infos)
    running, queued = (sum(info.status == status for info in listing.infos) for status in ("running", "queued"))
    facts = join_words(
        [
            f"{shown} of {count}" if shown < len(listing.infos) else count,
            "" if listing.complete else "reading …",
            f"{running} running" if running else "",
            f"{queued} queued" if queued else "",
            f"{marked} marked" if marked else "",
            star,
            f"all {', '.join(same)}" if (same := shared(infos)) else "",
            sort,
        ]
    )
    return Content.assemble(heading, "  ", (facts, MUTED))


def _refusal(info: RunInfo, action: str) -> str:
    """Says why an action cannot be done with a run; "" if it can."""
    if action in REFUSALS:
        return REFUSALS[action](info)
    return "" if action in ("mark", "about", "copy_path", "baseline") else unreadable(info)
