"""The terminal program: its screens, navigation between them, and quitting."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen

from trainers.config.options import Problem
from trainers.config.settings import Settings
from trainers.contract.rundir import RunDir
from tuiapp.feeds.end_watch import EndWatch
from tuiapp.library.preferences import UNREADABLE_THEMES, Preferences
from tuiapp.navigation import Navigation
from tuiapp.screens.lazy_root import LazyRootScreen
from tuiapp.screens.palette import system_commands
from tuiapp.screens.requests import CloneRun, CompareRuns, OpenRun, RunLaunched
from tuiapp.screens.strays import offer_to_end_strays
from tuiapp.terminal.driver import RobustDriver
from tuiapp.terminal.garbage import REST_S, collect_at_rest, collect_from_now_on
from tuiapp.terminal.key_queue import KeyQueue
from tuiapp.terminal.readable import readable
from tuiapp.terminal.reliable_timers import ReliableTimers

if TYPE_CHECKING:
    from trainers.config.machine import Machine
    from trainers.config.run_config import RunConfig
    from tuiapp.screens.configure import ConfigureScreen, Launcher

STRAYS_S = 0.5
"""Delay before strays are looked for."""


class TuiApp(ReliableTimers, App[None]):
    """Configures, launches and watches training runs. Runs continue without it."""

    TITLE = "tuiapp"

    # Textual reads the stylesheets of all screens but the default one itself.
    CSS_PATH = ["app.tcss", "screens/configure.tcss"]  # noqa: RUF012, Textual's type

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,question_mark", "toggle_help", "Keys", id="app.help", show=False),
        Binding("f3", "devices", "Devices", tooltip="Watch the devices", id="app.devices", show=False),
        Binding("ctrl+g", "show_runs", "Runs", id="app.runs", show=False),
        Binding("ctrl+z", "suspend_process", "Suspend", tooltip="Suspend tuiapp", id="app.suspend", show=False),
        Binding("ctrl+q", "leave", "Leave", id="app.leave", show=False, priority=True),
    ]

    def __init__(
        self,
        *,
        runs_dir: Path,
        run: RunDir | None = None,
        replay_speed: float | None = None,
        preset: str | None = None,
        config: RunConfig | None = None,
        machine: Machine | None = None,
        launcher: Launcher | None = None,
        settings: Settings | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        """`replay_speed` None shows `run` as it is; `machine` None inspects it; `launcher` is called in a thread."""
        no_color = os.environ.get("NO_COLOR")
        # A screen shown later brings its own stylesheet.
        super().__init__(css_path=self.CSS_PATH[:1] if run else None)
        for theme in UNREADABLE_THEMES:
            self.unregister_theme(theme)
        # Textual removes NO_COLOR for itself; child processes must see it too.
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color
        self._preferences = Preferences(self, settings or Settings(unicode="on"), problems)
        self._ends = EndWatch(self, self._preferences.settings)
        self._keys = KeyQueue(self, super().on_event)
        self._first_run, self._replay_speed = run, replay_speed

        def make_form() -> ConfigureScreen:
            from tuiapp.screens.configure import ConfigureScreen

            return ConfigureScreen(runs_dir=runs_dir, preset=preset, config=config, machine=machine, launcher=launcher)

        self._make_form = make_form
        self._configure: ConfigureScreen | None = None
        self._navigation = Navigation(self, runs_dir, self._form, self._ends.add)
        self._look_for_strays = partial(offer_to_end_strays, self, runs_dir)

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver for this platform, or `RobustDriver` in its place."""
        found = super().get_driver_class()
        return RobustDriver if issubclass(RobustDriver, found) else found

    async def on_event(self, event: events.Event) -> None:
        """Queues keys, and mouse presses behind them; passes on all other events at once."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self._keys.put(event)
        elif isinstance(event, events.MouseDown | events.MouseUp) and not event.is_forwarded:
            await self._keys.put_press(event)
        else:
            await super().on_event(event)

    @property
    def is_answering(self) -> bool:
        return self._keys.is_answering

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = readable(super().get_css_variables())
        return self.theme_variables

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._preferences.filters]

    def get_default_screen(self) -> Screen[Any]:
        """Configure is the lowest screen, built only when it is first shown."""
        return LazyRootScreen(self._form) if self._first_run else self._form()

    def _form(self) -> ConfigureScreen:
        if self._configure is None:
            self._configure = self._make_form()
        return self._configure

    def on_mount(self) -> None:
        self._preferences.begin()
        self._ends.begin()
        self.call_after_refresh(collect_from_now_on)
        self.set_interval(REST_S, lambda: collect_at_rest(self._keys.rest_s))
        if self._first_run and self._replay_speed:
            self._navigation.replay(self._first_run, self._replay_speed)
        elif self._first_run:
            self._navigation.watch(self._first_run)
        # It inspects every process of the machine: not before the first picture.
        self.set_timer(STRAYS_S, lambda: self.run_worker(self._look_for_strays(), group="strays"))

    @property
    def farewell(self) -> str:
        return self._navigation.farewell

    def action_watch(self) -> None:
        if self.screen is self._configure:
            self._navigation.watch_newest()

    def action_show_runs(self) -> None:
        self._navigation.show_runs()

    def action_devices(self) -> None:
        self._navigation.show_devices()

    @on(RunLaunched)
    @on(OpenRun)
    def _open(self, event: RunLaunched | OpenRun) -> None:
        if isinstance(event, OpenRun) and event.replay:
            self._navigation.replay(event.run)
        else:
            self._navigation.watch(event.run)

    @on(CompareRuns)
    def _compare(self, event: CompareRuns) -> None:
        self._navigation.compare(event.runs)

    @on(CloneRun)
    def _clone(self, event: CloneRun) -> None:
        self._navigation.clone(event.run, event.config)

    async def action_quit(self) -> None:
        """The palette's name for quitting."""
        self.action_leave()

    @work(group="leave")
    async def action_leave(self) -> None:
        if isinstance(self.screen, ModalScreen):
            self.notify("Answer the question first: escape cancels.", markup=False)
            return
        if self._configure and self._configure.launching:
            self.notify("A run is starting. Quit once it has started.", severity="warning", markup=False)
            return
        if await self._navigation.may_leave():
            self.exit()

    def action_toggle_help(self) -> None:
        if not isinstance(self.screen, ModalScreen):
            from tuiapp.screens.keys_help import KeysHelp

            self.push_screen(KeysHelp(self.screen))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from system_commands(self, screen, super().get_system_commands(screen))
