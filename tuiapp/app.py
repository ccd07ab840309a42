"""The terminal program: its screens, navigation between them, and quitting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on, work
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen

from tuiapp.feeds.end_watch import EndWatch
from tuiapp.library.find import find_runs, titled
from tuiapp.library.in_thread import in_thread
from tuiapp.screens.keys import Palette, system_commands
from tuiapp.screens.preferences import UNREADABLE_THEMES, Preferences
from tuiapp.screens.requests import CloneRun, CompareRuns, CompareWith, OpenRun, OpenStudy, RunLaunched, SweepQueued
from tuiapp.terminal.driver import RobustDriver
from tuiapp.terminal.garbage import REST_S, collect_at_rest, collect_from_now_on, freeze_gc
from tuiapp.terminal.key_queue import KeyQueue
from tuiapp.terminal.readable import readable
from tuiapp.terminal.slow_disk import patiently
from tuiapp.terminal.textual_fixes import ReliableTimers
from tuiapp.trainers.config.options import Problem
from tuiapp.trainers.config.settings import Settings
from tuiapp.trainers.contract.rundir import RunDir

if TYPE_CHECKING:
    from tuiapp.screens.configure import ConfigureScreen, Launcher
    from tuiapp.trainers.config.machine import Machine
    from tuiapp.trainers.config.run_config import RunConfig

JUST_S = 1.0
"""A warning younger than this may be of what opens a screen, as of a run that is resumed."""

FAREWELL_S = 0.5
"""How long the program waits for a slow disk after its end."""

STRAYS_S = 0.5
"""Delay before strays are looked for."""


class TuiApp(ReliableTimers, App[None]):
    """Configures, launches and watches training runs. Runs continue without it.

    Each screen, and what reads runs, is imported when it is first needed, so that it does not delay the first picture.
    """

    TITLE = "tuiapp"

    # Textual reads the stylesheets of all screens but the default one itself.
    CSS_PATH = ["app.tcss", "screens/configure.tcss"]  # noqa: RUF012, Textual's type

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "manual", "Help", tooltip="Open the handbook", id="app.manual", show=False),
        Binding("question_mark", "toggle_help", "Keys", id="app.help", show=False),
        Binding("ctrl+t", "jump", "Jump", tooltip="A letter to jump to", id="app.jump", show=False, priority=True),
        Binding("f3", "devices", "Devices", tooltip="Watch the devices", id="app.devices", show=False),
        Binding("ctrl+g", "show_runs", "Runs", id="app.runs", show=False),
        Binding("ctrl+p", "command_palette", "More", tooltip="Find an action by name", id="app.palette", priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", tooltip="Suspend tuiapp", id="app.suspend", show=False),
        Binding("ctrl+q", "quit", "Quit", id="app.quit", show=False, priority=True),
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
        remembers: bool = False,
    ) -> None:
        """`replay_speed` None shows `run` as it is; `machine` None inspects it; `launcher` is called in a thread.

        `remembers` is whether the form opens as it was left; then `preset` and `config` are for the first time.
        """
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
        self._runs_dir, self._first_run, self._replay_speed = runs_dir, run, replay_speed

        def make_form() -> ConfigureScreen:
            from tuiapp.screens.configure import ConfigureScreen

            return ConfigureScreen(
                runs_dir=runs_dir,
                preset=preset,
                config=config,
                machine=machine,
                launcher=launcher,
                remembers=remembers,
            )

        self._make_form = make_form
        self._configure: ConfigureScreen | None = None
        self._watched: list[RunDir] = []
        """Runs shown live in this session, the latest last."""
        self._stopping: set[RunDir] = set()
        self._has_pushed = False

    def get_driver_class(self) -> type[Driver]:
        """Returns Textual's driver for this platform, or `RobustDriver` in its place."""
        platform_driver = super().get_driver_class()
        return RobustDriver if issubclass(RobustDriver, platform_driver) else platform_driver

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
        """Returns the form, or Textual's empty screen beneath a run that the program is opened with."""
        return super().get_default_screen() if self._first_run else self._form()

    def _form(self) -> ConfigureScreen:
        if self._configure is None:
            self._configure = self._make_form()
        return self._configure

    def on_mount(self) -> None:
        self._preferences.begin()
        self._ends.start()
        self.call_after_refresh(collect_from_now_on)
        self.set_interval(REST_S, lambda: collect_at_rest(self._keys.rest_s))
        if self._first_run and self._replay_speed:
            self._replay(self._first_run, self._replay_speed)
        elif self._first_run:
            self.show_run(self._first_run)
        # It inspects every process of the machine: not before the first picture.
        self.set_timer(STRAYS_S, self._offer_to_end_strays)

    @work(group="strays")
    async def _offer_to_end_strays(self) -> None:
        from tuiapp.screens.quit import offer_to_end_strays

        await offer_to_end_strays(self, self._runs_dir)

    def on_unmount(self) -> None:
        self._ends.close()

    @property
    def farewell(self) -> str:
        """The lines about runs that continue; where the disk does not answer soon, about those that did."""
        from tuiapp.screens.quit import farewell

        try:
            live = in_thread(lambda: {run: titled(run) for run in reversed(self._watched) if run.is_live()})
            titles = live.result(FAREWELL_S)
        except TimeoutError:
            titles = {run: run.run_id for run in self._going_on()}
        return farewell(titles, self._stopping)

    def _going_on(self) -> list[RunDir]:
        """Runs of this session that are not known to be over, the latest first."""
        return [run for run in reversed(self._watched) if run not in self._ends.ended]

    @work(exclusive=True, group="watch")
    async def action_watch(self) -> None:
        """Shows the newest live run, or else the one of this session that ended last."""
        if self.screen is not self._configure:
            return
        chosen = await patiently(self, in_thread(self._find_live)) or next(reversed(self._watched), None)
        if self.screen is not self._configure:
            return
        if chosen is None:
            self.notify("There is no live run. Ctrl+R launches one.", markup=False)
        else:
            self.show_run(chosen)

    def _find_live(self) -> RunDir | None:
        runs = chain(reversed(self._watched), find_runs(self._runs_dir))
        return next((run for run in runs if run.is_live()), None)

    def action_show_runs(self) -> None:
        from tuiapp.screens.runs import RunsScreen

        if isinstance(self.screen, ModalScreen) or self._back_to(lambda screen: isinstance(screen, RunsScreen)):
            return
        self._push(RunsScreen(self._runs_dir))

    def action_jump(self) -> None:
        """Shows a letter at every target of the screen; where there is one already, takes them away."""
        from tuiapp.screens.jump import JumpScreen

        if isinstance(self.screen, JumpScreen):
            self.screen.dismiss()
        else:
            self.push_screen(JumpScreen(self.screen))

    def action_devices(self) -> None:
        from tuiapp.screens.devices import DevicesScreen

        if not isinstance(self.screen, DevicesScreen | ModalScreen):
            self._push(DevicesScreen(self._runs_dir))

    @on(RunLaunched)
    def _open_launched(self, event: RunLaunched) -> None:
        self.show_run(event.run)
        # Not before: keys that wait for the launch are for the run's screen.
        self._form().end_launch()

    @on(SweepQueued)
    def _open_sweep(self, event: SweepQueued) -> None:
        from tuiapp.screens.runs import RunsScreen

        self.action_show_runs()
        if isinstance(self.screen, RunsScreen):
            self.screen.filter_by(f"group:{event.study}")
        self.notify(f"{event.study}: {event.what}.", markup=False)
        self._form().end_launch()

    @on(OpenStudy)
    def _open_study(self, event: OpenStudy) -> None:
        from tuiapp.screens.study import StudyScreen

        self._push(StudyScreen(self._runs_dir, event.name))

    @on(OpenRun)
    def _open(self, event: OpenRun) -> None:
        if event.replay:
            self._replay(event.run)
        else:
            self.show_run(event.run)

    def show_run(self, run: RunDir) -> None:
        """Shows a run as it is now."""
        from tuiapp.screens.run import RunScreen

        self._watched = [*(watched for watched in self._watched if watched != run), run]
        self._ends.add(run)
        if not self._back_to(lambda it: isinstance(it, RunScreen) and it.run == run and not it.replayed):
            self._push(RunScreen(run))

    def _replay(self, run: RunDir, speed: float = 1.0) -> None:
        from tuiapp.feeds.feed import ReplayFeed
        from tuiapp.screens.run import RunScreen

        self._push(RunScreen(run, ReplayFeed(run, speed)))

    @on(CompareRuns)
    def _compare(self, event: CompareRuns) -> None:
        from tuiapp.screens.compare import CompareScreen

        self._push(CompareScreen(event.runs))

    @on(CompareWith)
    def _choose_other(self, event: CompareWith) -> None:
        from tuiapp.screens.runs import RunsScreen

        self.action_show_runs()
        if isinstance(self.screen, RunsScreen):
            self.screen.mark_alone(event.run)

    @on(CloneRun)
    def _clone(self, event: CloneRun) -> None:
        form = self._form()
        while self.screen is not form:
            self.pop_screen()
        form.load_like(event.run, event.config)

    def _push(self, screen: Screen[Any]) -> None:
        self._drop_notices()
        self.push_screen(screen)
        self.call_after_refresh(freeze_gc, may_be_gone=self._has_pushed)
        self._has_pushed = True

    def pop_screen(self) -> AwaitComplete:
        if not isinstance(self.screen, ModalScreen):
            self._drop_notices()
        if self._first_run and len(self.screen_stack) == 2:
            # Not before, so that opening a run builds no form.
            return self.switch_screen(self._form())
        return super().pop_screen()

    def _drop_notices(self) -> None:
        """Removes the notices of the screen that is left, but for a warning of what opens the next."""
        for note in [
            note
            for note in self._notifications
            if note.severity == "information" or note.raised_at < time.time() - JUST_S
        ]:
            self._unnotify(note)

    def _back_to(self, is_wanted: Callable[[Screen[Any]], bool]) -> bool:
        """Pops the screens above the wanted one; returns whether there is one."""
        if not any(is_wanted(screen) for screen in self.screen_stack):
            return False
        while not is_wanted(self.screen):
            self.pop_screen()
        return True

    async def action_quit(self) -> None:
        """Ends tuiapp, after asking where runs of this session are live."""
        self._quit()

    @work(group="quit")
    async def _quit(self) -> None:
        from tuiapp.screens.quit import confirm_quit

        if isinstance(self.screen, ModalScreen):
            self.notify("Answer the question first. Escape cancels it.", markup=False)
            return
        if self._configure and self._configure.launching:
            self.notify("A run is starting. Quit once it has started.", severity="warning", markup=False)
            return
        runs = [run for run in reversed(self._watched) if run not in self._stopping]
        going_on = [run for run in self._going_on() if run in runs]
        decided = await confirm_quit(self, runs, going_on) if runs else "quit"
        if decided == "stopping":
            self._stopping.update(runs)
        if decided != "stay":
            self.exit()

    def action_manual(self) -> None:
        """Opens the handbook at the page of the uppermost screen that has one."""
        from tuiapp.screens.manual import ManualScreen

        if any(isinstance(screen, ManualScreen) for screen in self.screen_stack):
            # It, or the list of its keys in front of it.
            self.screen.dismiss()
            return
        pages = [screen.MANUAL for screen in reversed(self.screen_stack) if hasattr(screen, "MANUAL")]
        self.push_screen(ManualScreen(pages[0] if pages else "configure"))

    def action_toggle_help(self) -> None:
        if not isinstance(self.screen, ModalScreen):
            from tuiapp.screens.keys import KeysHelp

            self.push_screen(KeysHelp(self.screen))

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, ModalScreen):
            self.push_screen(Palette(self.get_system_commands(self.screen)))

    def search_themes(self) -> None:
        from tuiapp.screens.pickers import ThemeList

        def save(name: str | None) -> None:
            if name:
                self._preferences.save_theme(name)

        self.push_screen(ThemeList(), save)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from system_commands(self, screen, super().get_system_commands(screen))
