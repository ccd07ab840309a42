"""The terminal program: the screens, how one gets from one to the other, and how one leaves."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import ModalScreen, Screen

from trainers.contract.config import RunConfig
from trainers.contract.machine import Machine
from trainers.contract.rundir import RunDir
from trainers.contract.runs import list_runs
from trainers.launch import launch
from tuiapp.screens.configure import ConfigureScreen, Launcher
from tuiapp.screens.leave import farewell, leave_asking
from tuiapp.terminal import PatientDriver, end_on_signals


class TuiApp(App[None]):
    """Configures, launches and watches training runs. Runs go on without it."""

    TITLE = "tuiapp"

    # Textual reads the stylesheet of every screen but the default one by itself.
    CSS_PATH = ["app.tcss", "screens/configure.tcss"]  # noqa: RUF012, Textual's type

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,question_mark", "toggle_help", "Keys", show=False),
        Binding("ctrl+q", "leave", "Leave", show=False, priority=True),
    ]

    def __init__(
        self,
        *,
        runs_dir: Path,
        run: RunDir | None = None,
        preset: str | None = None,
        config: RunConfig | None = None,
        machine: Machine | None = None,
        launcher: Launcher = launch,
    ) -> None:
        """Prepare the program.

        Args:
            runs_dir: Where runs are made and looked for.
            run: The run to watch at once; None to begin with Configure.
            preset: The preset Configure starts from; None for the defaults.
            config: What the form holds at first; None for the preset's values.
            machine: What this machine has; None to find out.
            launcher: Starts a run; called in a thread.
        """
        no_color = os.environ.get("NO_COLOR")
        super().__init__()
        # In the terminal's own 16 colours nothing can be shaded: the alert strip and the charts' axes would be lost.
        for theme in ("ansi-dark", "ansi-light"):
            self.unregister_theme(theme)
        # Textual takes NO_COLOR for itself; the processes we start must see it too.
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color
        self._runs_dir = runs_dir
        self._runs = [run] if run else []
        self._stopping: set[RunDir] = set()
        self._configure = ConfigureScreen(
            runs_dir=runs_dir, preset=preset, config=config, machine=machine, launcher=launcher
        )

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver for this platform, made patient."""
        found = super().get_driver_class()
        return PatientDriver if issubclass(PatientDriver, found) else found

    def get_default_screen(self) -> Screen[Any]:
        """Configure lies beneath all other screens."""
        return self._configure

    def on_mount(self) -> None:
        """Watch the run that was given, and end in order when told to."""
        end_on_signals(self)
        self.call_after_refresh(gc.enable)
        for run in self._runs:
            self._watch(run)

    @property
    def farewell(self) -> str:
        """What to print after the program has ended: which runs of this session go on; "" when none does."""
        return farewell(self._live_runs(), self._stopping)

    def action_watch(self) -> None:
        """Show the newest run that goes on, or else the one of this session that ended last."""
        if self.screen is not self._configure:
            return
        live = next((run for run in list_runs(self._runs_dir) if run.is_live()), None)
        chosen = next(iter([*self._live_runs(), *([live] if live else []), *self._runs[::-1]]), None)
        if chosen is None:
            self.notify("No run goes on here. Ctrl+R launches one.", markup=False)
        else:
            self._watch(chosen)

    @on(ConfigureScreen.RunLaunched)
    def _watch_launched(self, event: ConfigureScreen.RunLaunched) -> None:
        self._watch(event.run)

    def _watch(self, run: RunDir) -> None:
        # Its charts take a while to import, and nobody sees them before there is a run.
        from tuiapp.screens.run import RunScreen

        self._runs = [*(known for known in self._runs if known != run), run]
        self.push_screen(RunScreen(run))

    def _live_runs(self) -> list[RunDir]:
        return [run for run in reversed(self._runs) if run.is_live()]

    async def action_quit(self) -> None:
        """What the palette calls leaving."""
        self.action_leave()

    @work(group="leave")
    async def action_leave(self) -> None:
        """End the program; asks first what is to become of the runs of this session that go on."""
        if isinstance(self.screen, ModalScreen):
            self.notify("Answer the question first: escape cancels.", markup=False)
            return
        if self._configure.launching:
            self.notify("A run is being started; leave when that is done.", severity="warning", markup=False)
            return
        going_on = [run for run in self._live_runs() if run not in self._stopping]
        decided = await leave_asking(self, going_on) if going_on else "leave"
        if decided == "stopping":
            self._stopping.update(going_on)
        if decided != "stay":
            self.exit()

    def action_toggle_help(self) -> None:
        """Show or hide the keys of where one is."""
        # By name: to import it takes 40 ms of the first paint.
        shown = bool(self.screen.query("HelpPanel"))
        (self.action_hide_help_panel if shown else self.action_show_help_panel)()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Textual's commands, and all that has a key on the screen."""
        yield from super().get_system_commands(screen)
        for _, binding, enabled, _ in screen.active_bindings.values():
            if enabled and binding.description and not binding.system:
                action = partial(self.run_action, binding.action, screen)
                yield SystemCommand(binding.description, f"Key: {self.get_key_display(binding)}", action)
