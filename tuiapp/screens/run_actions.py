"""What the keys of the Run screen do."""

from __future__ import annotations

from textual import on, work
from textual.reactive import reactive

from tuiapp.screens.run_charts import RunCharts
from tuiapp.screens.run_control import RunControl
from tuiapp.screens.run_reader import RunReader, steer
from tuiapp.state.run_state import RunState
from tuiapp.terminal.covered_screen import QuietScreen
from tuiapp.widgets.alert_strip import AlertStrip
from tuiapp.widgets.log_view import LogView
from tuiapp.widgets.rank_table import RankTable
from tuiapp.widgets.replay_bar import ReplayBar


class RunActions(QuietScreen[None]):
    """A screen with a run's panels, and the actions on them; what the panels show is the business of `RunScreen`."""

    chosen: reactive[str] = reactive("", repaint=False)
    """The panel that has the room to itself; "" for all, where all have room."""

    single: reactive[bool] = reactive(False, repaint=False)
    """Whether there is room for one panel at a time only."""

    _reader: RunReader
    _control: RunControl
    _charts: RunCharts

    @property
    def state(self) -> RunState:
        """The run as it is shown."""
        return self._reader.state

    @property
    def replayed(self) -> bool:
        """Whether it is a run over again that is shown, not the run as it stands."""
        return self._reader.replay is not None

    @property
    def is_live(self) -> bool:
        """Whether the run goes on, as far as is known; what a replay shows does not."""
        return self.state.is_live and self._reader.replay is None

    def arrange_panels(self) -> None:
        """Show all panels, or the chosen one."""
        raise NotImplementedError

    def action_chart(self, what: str) -> None:
        """Do what a key says with the charts."""
        self._charts.do(what)

    def action_next_rank(self) -> None:
        """Choose the next rank for the chart and the log; after the last one, all of them."""
        rank = self.query_one(LogView).rank
        ranks = [None, *sorted(self.state.ranks)]
        place = ranks.index(rank) if rank in ranks else 0
        self.choose_rank(ranks[(place + 1) % len(ranks)])

    def choose_rank(self, rank: int | None) -> None:
        """Draw one rank, and show its lines alone; None for all."""
        self.query_one(LogView).rank = self.query_one(RankTable).chosen = rank
        self._charts.choose_rank(rank)

    @on(RankTable.Chosen)
    def _choose_row(self, event: RankTable.Chosen) -> None:
        self.choose_rank(None if event.rank == self.query_one(LogView).rank else event.rank)

    def action_sort_ranks(self) -> None:
        """Sort the ranks by something else."""
        self.query_one(RankTable).sort_by_next()

    def action_stream(self) -> None:
        """Show what was written to one stream alone."""
        self.query_one(LogView).next_stream()

    def action_find(self, by: int) -> None:
        """Go to the next line with what was searched for, or to the one before."""
        if self.single:
            self.chosen = "log"
        self.query_one(LogView).find(by)

    def action_dismiss_alert(self) -> None:
        """Take the alert off the screen until there is something new to say."""
        self.query_one(AlertStrip).dismiss()

    def action_follow(self) -> None:
        """Follow the log, or stand still."""
        self.query_one(LogView).toggle_follow()

    def action_search(self) -> None:
        """Look for lines in the log."""
        if self.single:
            self.chosen = "log"
        self.query_one(LogView).open_search()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what can be asked of the run now; of a replay nothing, but to pause and move it."""
        if action == "replay":
            return self._reader.replay is not None
        if action in ("stop", "checkpoint"):
            return self.is_live
        if action == "panel" and parameters == ("failure",):
            return bool(self.state.fault)
        if action == "resume":
            return self.state.can_resume and not self._control.resuming
        return True

    def action_replay(self, what: str) -> None:
        """Pause the replay, move it, or change its speed."""
        replay = self._reader.replay
        if replay is not None:
            steer(replay, what)

    @on(ReplayBar.Sought)
    def _seek(self, event: ReplayBar.Sought) -> None:
        if replay := self._reader.replay:
            replay.seek(event.fraction * replay.duration)

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
