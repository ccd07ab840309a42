"""Navigation between screens, and the runs that this session has shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.screen import ModalScreen, Screen

from trainers.contract.rundir import RunDir
from tuiapp.library.find import list_runs
from tuiapp.screens.leave import confirm_quit, farewell
from tuiapp.terminal.garbage import freeze_gc

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig
    from tuiapp.screens.configure import ConfigureScreen


class Navigation:
    """Imports each screen when it is first shown, so that its charts or fields do not delay the first picture.

    `form` returns Configure, the lowest screen; `shown` is called with each run that is shown live.
    """

    def __init__(
        self, app: App[Any], runs_dir: Path, form: Callable[[], ConfigureScreen], shown: Callable[[RunDir], None]
    ) -> None:
        self._app, self._runs_dir, self._form, self._shown = app, runs_dir, form, shown
        self.runs: list[RunDir] = []
        """Runs shown in this session, the latest last."""
        self._stopping: set[RunDir] = set()
        self._has_pushed = False

    def live_runs(self) -> list[RunDir]:
        return [run for run in reversed(self.runs) if run.is_live()]

    @property
    def farewell(self) -> str:
        return farewell(self.live_runs(), self._stopping)

    async def may_leave(self) -> bool:
        """Asks whether to stop this session's live runs; returns whether to quit. Must run in a worker."""
        going_on = [run for run in self.live_runs() if run not in self._stopping]
        decided = await confirm_quit(self._app, going_on) if going_on else "leave"
        if decided == "stopping":
            self._stopping.update(going_on)
        return decided != "stay"

    def watch(self, run: RunDir) -> None:
        from tuiapp.screens.run import RunScreen

        self.runs = [*(known for known in self.runs if known != run), run]
        self._shown(run)
        if not self._back_to(
            lambda screen: isinstance(screen, RunScreen) and screen.run == run and not screen.replayed
        ):
            self._push(RunScreen(run))

    def replay(self, run: RunDir, speed: float = 1.0) -> None:
        """Plays a run from its first step; `speed` 1 is its original pace."""
        from tuiapp.feeds.replay_feed import ReplayFeed
        from tuiapp.screens.run import RunScreen

        self._push(RunScreen(run, ReplayFeed(run, speed)))

    def show_devices(self) -> None:
        from tuiapp.screens.devices import DevicesScreen

        if not isinstance(self._app.screen, DevicesScreen | ModalScreen):
            self._push(DevicesScreen(self._runs_dir))

    def watch_newest(self) -> None:
        """Shows the newest live run, or else the one of this session that ended last."""
        live = next((run for run in list_runs(self._runs_dir) if run.is_live()), None)
        chosen = next(iter([*self.live_runs(), *([live] if live else []), *self.runs[::-1]]), None)
        if chosen is None:
            self._app.notify("There is no live run. Ctrl+R launches one.", markup=False)
        else:
            self.watch(chosen)

    def show_runs(self) -> None:
        from tuiapp.screens.runs import RunsScreen

        if isinstance(self._app.screen, ModalScreen):
            return
        if not self._back_to(lambda screen: isinstance(screen, RunsScreen)):
            self._push(RunsScreen(self._runs_dir))

    def compare(self, runs: tuple[RunDir, ...]) -> None:
        from tuiapp.screens.compare import CompareScreen

        self._push(CompareScreen(runs))

    def clone(self, run: RunDir, config: RunConfig) -> None:
        form = self._form()
        if not self._back_to(lambda screen: screen is form):
            # Resuming the lowest screen builds the form.
            lowest = self._app.screen_stack[0]
            self._back_to(lambda screen: screen is lowest)
        form.load_like(run, config)

    def _push(self, screen: Screen[Any]) -> None:
        self._app.push_screen(screen)
        self._app.call_after_refresh(freeze_gc, may_be_gone=self._has_pushed)
        self._has_pushed = True

    def _back_to(self, is_wanted: Callable[[Screen[Any]], bool]) -> bool:
        """Pops the screens above the wanted one; returns whether there is one."""
        stack = self._app.screen_stack
        if not any(is_wanted(screen) for screen in stack):
            return False
        while not is_wanted(self._app.screen):
            self._app.pop_screen()
        return True
