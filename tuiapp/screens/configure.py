"""Configure: presets on the left, the form on the right, what a launch would do beneath."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Button, Static

from tuiapp.library.chart_view import form_path, last_form, read_last_form, write_last_form
from tuiapp.library.environments import find_environments, inspect_environments
from tuiapp.library.find import UnknownRunError, weights_path
from tuiapp.library.in_thread import in_thread
from tuiapp.library.presets import MY_SCRIPT, Preset, list_presets
from tuiapp.screens.dialog import Choice
from tuiapp.screens.preset_dialogs import can_be_loaded, confirm_change, confirm_save
from tuiapp.screens.requests import RunLaunched, SweepQueued
from tuiapp.terminal.textual_fixes import ResizeLoopFix
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.machine import Machine, inspect_machine, suits_newest
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.settings import read_settings
from tuiapp.trainers.contract.rundir import RunDir, default_runs_dir
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.experiments.study import Study
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import plural, sanitize
from tuiapp.view.draft import NAME, Draft, command_line, examine, machine_words, study_of, to_texts
from tuiapp.view.run_list import title
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.launch_facts import LaunchFacts
from tuiapp.widgets.preset_list import PresetList
from tuiapp.widgets.steady_footer import SteadyFooter

if TYPE_CHECKING:
    from tuiapp.trainers.config.settings import Settings
    from tuiapp.trainers.experiments.placing import HeldDevices
    from tuiapp.widgets.choice_input import ChoiceInput

Launcher: TypeAlias = Callable[[RunConfig, Path, Machine | None, About], RunDir]
"""Starts a run: `tuiapp.trainers.launch.launch`, or a test's replacement."""


NAMES = 4
"""Most runs that a question names."""

REMEMBERED_S = 0.5
"""How long the program's end waits until the form is written."""


class ConfigureScreen(ResizeLoopFix[None]):
    CSS_PATH = "configure.tcss"
    MANUAL = "configure"

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012, Textual's type
    VERTICAL_BREAKPOINTS = [(0, "-least"), (18, "-short"), (40, "-tall"), (44, "-high")]  # noqa: RUF012, Textual's type

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "launch", "Launch", tooltip="Launch the run", id="configure.launch"),
        Binding("ctrl+s", "save", "Save", tooltip="Save as a preset", id="configure.save"),
        Binding("ctrl+l", "focus_presets", "Presets", tooltip="Choose a preset", id="configure.presets"),
        Binding("slash", "find_field", "Find a field", id="configure.find", show=False),
        Binding("ctrl+y", "copy_command", "Copy", tooltip="Copy the command", id="configure.copy"),
        Binding("ctrl+o", "app.watch", "Watch", tooltip="Watch the newest run", id="app.watch"),
        Binding("ctrl+g", "app.show_runs", "Runs", tooltip="List all runs", id="app.runs"),
        Binding("f1", "app.manual", "Help", tooltip="Open the handbook", id="app.manual"),
        Binding("question_mark", "app.toggle_help", "Keys", tooltip="List the keys", id="app.help", show=False),
        Binding("ctrl+q", "app.quit", "Quit", tooltip="Quit tuiapp", id="app.quit", priority=True),
        Binding("ctrl+z", "undo", "Undo", tooltip="Undo the last load", id="configure.undo", show=False),
        Binding("f5", "restore", "Restore the preset", id="configure.restore", show=False),
        Binding("f6", "look_again", "Detect devices again", id="configure.look", show=False),
        Binding("q", "app.quit", "Quit", id="app.quit-letter", show=False),
    ]

    launching: reactive[bool] = reactive(False, init=False)

    def __init__(
        self,
        *,
        runs_dir: Path,
        preset: str | None = None,
        config: RunConfig | None = None,
        machine: Machine | None = None,
        launcher: Launcher | None = None,
        remembers: bool = False,
    ) -> None:
        """None for `preset` means the defaults, for `machine` an inspection, for `launcher` a real launch.

        With `remembers` the form opens as it was left, and `preset` is what F5 brings back.
        """
        super().__init__()
        self._runs_dir = runs_dir
        self._machine = machine
        self._is_inspected = machine is None
        self._launcher = launcher
        self._presets = _with_script(list_presets())
        self._first = self._find(preset)
        self._remembers = remembers
        self._last, self._why_not_last = read_last_form() if remembers else (None, "")
        self._preset = self._find(self._last.preset) if self._last else self._first
        self._now = self._last.texts if self._last else to_texts(config or self._base)
        """The texts of the fields from which the draft was made."""
        self._draft = self._examined(machine)
        self._is_as_left = bool(self._last) and (self._preset != self._first or bool(self._draft.changed))
        """Whether the form has the values of the program's last end, and no preset was loaded since."""
        self._failure = ""
        self._looking = False
        self._held: Mapping[RunDir, HeldDevices] = {}
        self._settings: Settings | None = None
        self._recent: dict[tuple[str, ...], RunInfo] = {}
        self._before_load: tuple[Preset | None, dict[str, str]] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="machine")
        with Horizontal(id="body"):
            presets = PresetList(presets=self._presets, loaded=self._preset.name if self._preset else None)
            presets.border_title = "Presets"
            yield presets
            yield ConfigForm(texts=self._now, draft=self._draft)
        yield LaunchFacts()
        yield SteadyFooter("copy_command", "app.watch")

    async def on_mount(self) -> None:
        self.query_one(PresetList).focus()
        await self._show_machine()
        self._show()
        if self._machine is None:
            # Not before: the thread would take its time from the first picture.
            self.call_after_refresh(self.action_look_again)
        self.call_after_refresh(self._focus_form_if_alone)
        if self._why_not_last:
            problem = sanitize(f"{form_path()}: {self._why_not_last}.")
            self.notify(problem, title="The last form cannot be used", severity="warning", markup=False)

    def on_screen_resume(self) -> None:
        # Not before the first picture.
        if self._machine is not None:
            self.call_after_refresh(self.look_for_runs)

    def on_unmount(self) -> None:
        # A disk that does not answer must not keep the program from ending.
        with contextlib.suppress(OSError, TimeoutError):
            in_thread(self._remember).result(REMEMBERED_S)

    def _remember(self) -> None:
        preset = self._preset.name if self._preset and not self._preset.is_run else ""
        now = last_form(preset, self._now)
        if self._remembers and now != self._last:
            write_last_form(now)
            self._last = now

    def on_resize(self) -> None:
        # After the first picture.
        roomy = self.has_class("-wide") and self.has_class("-high")
        self.call_after_refresh(self.query_one(ConfigForm).give_room, roomy)

    def watch_launching(self, launching: bool) -> None:
        self.query_one(LaunchFacts).launching = launching

    @property
    def command(self) -> str | None:
        """The equivalent command; None while a field is invalid."""
        elsewhere = None if self._runs_dir == default_runs_dir() else str(self._runs_dir)
        preset = self._preset
        if preset is None or preset == MY_SCRIPT:
            return command_line(replace(self._draft, base=RunConfig()), None, elsewhere)
        return command_line(self._draft, preset.name, elsewhere, like=preset.is_run)

    @property
    def _base(self) -> RunConfig:
        return self._preset.config if self._preset and self._preset.config else RunConfig()

    @on(Button.Pressed, "#launch")
    def action_launch(self) -> None:
        if self.launching:
            return
        if self._draft.problems:
            self._refuse("Cannot launch: fix the marked fields first.")
            return
        self._failure = ""
        self.launching = True
        self._show()
        if self._draft.axes:
            self._sweep(study_of(self._draft, self._preset.name if self._preset else None))
        else:
            self._launch(self._draft.config, self._draft.about)

    @work(group="ask")
    async def action_save(self) -> None:
        if self._draft.axes:
            self.notify("A preset has one value of each key: choose one where there are several.", severity="error")
            return
        if not self._draft.is_sound:
            self._refuse("Cannot save: fix the marked fields first.")
            return
        if path := await confirm_save(self.app, self._draft.config, self._preset):
            self._read_presets(loaded=path.stem, cursor=path.stem)

    def action_focus_presets(self) -> None:
        """Focuses the presets, read again: their files may have been edited by hand."""
        self._read_presets()
        self.add_class("-choosing")
        self.call_after_refresh(self.query_one(PresetList).focus)

    def action_copy_command(self) -> None:
        if self.command is None:
            self._refuse("No command to copy: fix the marked fields first.")
            return
        self.app.copy_to_clipboard(self.command)
        self.notify(sanitize(self.command), title="Copied", markup=False)

    def _find(self, preset: str | None) -> Preset | None:
        return next((candidate for candidate in self._presets if candidate.name == preset and candidate.config), None)

    def load_like(self, run: RunDir, config: RunConfig) -> None:
        """Loads a run's configuration, as soon as the screen is there."""
        self.call_later(self._load, Preset(run.run_id, run.path, builtin=True, config=config, is_run=True))

    def action_undo(self) -> None:
        if self._before_load is not None:
            (self._preset, texts), self._before_load = self._before_load, None
            self._fill(texts)

    def action_restore(self) -> None:
        self._load(self._first if self._is_as_left else self._preset)

    def action_look_again(self) -> None:
        """Inspects the machine again; the known facts stay until then."""
        if not self._looking:
            self._looking = True
            # A daemon thread: a driver that does not answer must not keep the program from ending.
            threading.Thread(target=inspect_for, args=(self,), name="inspect-machine", daemon=True).start()

    @on(ConfigForm.ConfigChanged)
    def _examine_changes(self) -> None:
        self._failure = ""
        self._examine(self._texts)

    @work(group="ask")
    async def on_choice_input_unavailable_chosen(self, event: ChoiceInput.UnavailableChosen) -> None:
        """Offers to make the environment of a backend that has none, and chooses the backend when it is there."""
        event.stop()
        environment = next(environment for environment in find_environments() if environment.backend == event.value)
        if environment.interpreter.origin == "settings":
            self.notify(sanitize(environment.unavailable), title=event.value, severity="error", markup=False)
            return
        # Imported late: few need it.
        from tuiapp.screens.preset_dialogs import EnvironmentDialog

        dialog = EnvironmentDialog(
            BACKENDS[event.value].framework,
            environment.unavailable.partition(", or tuiapp")[0],
            gpus=bool(self._machine and self._machine.gpus),
            older=self._machine is not None and not suits_newest(self._machine),
            again=environment.interpreter.origin == "created",
        )
        if await self.app.push_screen_wait(dialog):
            self.take_environments()
            self.query_one(ConfigForm).load({"backend": event.value})
            self._examine_changes()

    @work(group="ask")
    async def action_find_field(self) -> None:
        # Imported late: it is not for the first picture.
        from tuiapp.screens.pickers import FieldList

        key = await self.app.push_screen_wait(FieldList(self._draft.hidden))
        if key is not None:
            self.remove_class("-choosing")
            self.query_one(ConfigForm).focus_field(key)

    @on(PresetList.PresetChosen)
    def _load_chosen(self, event: PresetList.PresetChosen) -> None:
        if can_be_loaded(self.app, event.preset):
            self._load(event.preset)
            if event.preset == MY_SCRIPT:
                self.remove_class("-choosing")
                self.query_one(ConfigForm).focus_field("script")

    @on(PresetList.ChangeRequested)
    @work(group="ask")
    async def _change_preset(self, event: PresetList.ChangeRequested) -> None:
        if event.preset == MY_SCRIPT:
            self.notify("It is no file: Enter fills the form for your own script, Ctrl+S saves that.", markup=False)
            return
        name = await confirm_change(self.app, event.preset, event.change)
        if name is not None:
            renamed = event.change == "rename" and self._preset is not None and event.preset.name == self._preset.name
            self._read_presets(loaded=name if renamed else "", cursor=name)

    def end_launch(self) -> None:
        """Prepares the form for the next run, once this one's screen is shown."""
        self.launching = False
        # The next run has another; a sweep's runs share their tags.
        self.query_one(ConfigForm).load({NAME.key: ""})
        self._examine(self._texts)

    def _show_failure(self, error: Exception) -> None:
        self.launching = False
        if isinstance(error, ConfigError):
            self._draft = self._draft.with_problems(error.problems)
        else:
            self._failure = str(error) or repr(error)
        self._show()
        self.query_one(ConfigForm).focus_first(self._draft.problems)

    async def take_machine(self, machine: Machine | None, problem: str = "") -> None:
        """Takes over what an inspection found, or why it failed."""
        self._looking = False
        self._machine = machine or self._machine
        self._failure = problem
        await self._show_machine()
        self._examine(self._texts)
        self.look_for_runs()

    def take_environments(self) -> None:
        """Takes over what the backends' interpreters have answered."""
        self.query_one(ConfigForm).show_environments()
        self._examine(self._texts)

    @work(group="launch")
    async def _launch(self, config: RunConfig, about: About) -> None:
        # Imported late: they would delay the first picture.
        from tuiapp.trainers.experiments.queue import enqueue
        from tuiapp.trainers.launch import launch

        try:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._remember)
            # Inspected again: others may use since then what was idle.
            machine = None if self._is_inspected else self._machine
            if machine is None:
                machine = await asyncio.to_thread(inspect_machine)
            start = partial(self._launcher or launch, config, self._runs_dir, machine, about)
            if holders := await asyncio.to_thread(_conflicting_runs, config, self._runs_dir, machine):
                answer = await self.app.push_screen_wait(_question(holders))
                if answer not in ("queue", "launch"):
                    self.launching = False
                    return
                if answer == "queue":
                    start = partial(enqueue, config, self._runs_dir, about, machine=machine)
            run = await asyncio.to_thread(start)
        except Exception as error:  # Shown to the user, who keeps the form.
            self._show_failure(error)
        else:
            self.post_message(RunLaunched(run))

    @work(thread=True, group="launch")
    def _sweep(self, study: Study) -> None:
        # Imported late: they would delay the first picture.
        from tuiapp.trainers.experiments.sweep import begin_grid, begin_search

        machine = None if self._is_inspected else self._machine
        try:
            if study.search:
                directory, what = begin_search(study, self._runs_dir, machine), "the search has begun"
            else:
                directory, runs = begin_grid(study, self._runs_dir, machine)
                what = f"{plural(len(runs), 'run')} queued"
        except Exception as error:  # Shown to the user, who keeps the form.
            self.call_later(self._show_failure, error)
        else:
            self.post_message(SweepQueued(directory.name, what))

    def _focus_form_if_alone(self) -> None:
        if self.focused is None:
            # The presets do not fit.
            self.query_one(ConfigForm).focus_field("backend")

    def _load(self, preset: Preset | None) -> None:
        lost = len(self._draft.changed)
        self._before_load = (self._preset, self._texts)
        self._preset, self._is_as_left = preset, False
        self._fill(to_texts(self._base))
        self.remove_class("-choosing")
        if lost:
            self.notify(f"{plural(lost, 'change')} discarded. Ctrl+Z restores them.", markup=False)

    @property
    def _texts(self) -> dict[str, str]:
        return self.query_one(ConfigForm).texts

    def _fill(self, texts: dict[str, str]) -> None:
        self._failure = ""
        self.query_one(ConfigForm).load(texts)
        self._rebase(self._preset)

    def _read_presets(self, loaded: str = "", cursor: str = "") -> None:
        """Lists the presets on disk, keeping the loaded one and the cursor unless named."""
        self._presets = _with_script(list_presets())
        name = loaded or (self._preset.name if self._preset else "")
        run = self._preset if self._preset and self._preset.is_run and not loaded else None
        self._rebase(
            run or next((preset for preset in self._presets if preset.name == name and preset.config), None), cursor
        )

    def _rebase(self, preset: Preset | None, cursor: str = "") -> None:
        """Compares the form with another preset, or with the defaults."""
        self._preset = preset
        self.query_one(PresetList).show(self._presets, preset.name if preset else None, cursor)
        self._examine(self._texts)

    def _examine(self, texts: dict[str, str]) -> None:
        self._now = texts
        self._draft = self._examined(self._machine)
        self._show()

    def _examined(self, machine: Machine | None) -> Draft:
        texts = dict(self._now)
        # What names no run is a problem of the field.
        with contextlib.suppress(UnknownRunError):
            texts["init_from"] = weights_path(texts.get("init_from", "").strip(), self._runs_dir)
        return examine(texts, self._base, machine)

    def _show(self) -> None:
        self._show_header()
        form = self.query_one(ConfigForm)
        form.show(self._draft)
        count = len(self._draft.changed)
        name = sanitize(self._preset.name) if self._preset else "Defaults"
        back = sanitize(self._first.name) if self._first else "defaults"
        form.border_title = Content(
            (f"{name} • {plural(count, 'change')}" if count else name)
            + (f" · last used, F5: {back}" if self._is_as_left else "")
        )
        self.query_one(LaunchFacts).show(self._draft, self._machine, self.command, self._failure, self._expected())

    def _expected(self) -> str:
        """Returns what a sweep will take, as far as earlier runs tell."""
        placed = self._draft.placed
        if not self._draft.axes or placed is None or self._machine is None or not self._recent:
            return ""
        # They were imported where the runs were found.
        from tuiapp.library.queue_words import cost_words
        from tuiapp.trainers.experiments.pace import cost
        from tuiapp.trainers.experiments.sweep import fits

        draft = self._draft
        at_a_time, swept = fits(draft.config, self._machine, self._settings), [axis.key for axis in draft.axes]
        expected = cost(draft.runs, at_a_time, placed, draft.total_steps or 0, self._recent, swept)
        return cost_words(expected, at_most=bool(draft.search))

    def _show_header(self) -> None:
        count = 0
        if self._draft.placed is not None and self._settings is not None and self._held:
            # It was imported where the runs were found.
            from tuiapp.trainers.experiments.holders import conflicting_runs

            # The live runs that have devices which a launch would take, as far as is known.
            count = len(conflicting_runs(self._draft.placed, self._held, self._settings))
        used = f"! {plural(count, 'live run')} {'uses' if count == 1 else 'use'} these devices" if count else ""
        text = Content.assemble(
            ("tuiapp", "bold $text-primary"),
            "  ",
            (used, "bold $text-warning"),
            " · " if used else "",
            machine_words(self._machine),
        )
        header = self.query_one("#machine", Static)
        if header.content != text:
            header.update(text)

    def look_for_runs(self) -> None:
        """Finds out anew which live runs have which devices."""
        threading.Thread(target=_look_for_runs, args=(self, self._runs_dir), name="look-for-runs", daemon=True).start()

    def take_held(self, held: Mapping[RunDir, HeldDevices], settings: Settings) -> None:
        """Takes over what live runs have."""
        self._held, self._settings = held, settings
        self._show_header()

    def take_recent(self, recent: dict[tuple[str, ...], RunInfo]) -> None:
        """Takes over the newest completed run of each kind."""
        self._recent = recent
        self._show()

    async def _show_machine(self) -> None:
        self._show_header()
        if self._machine is not None:
            await self.query_one(ConfigForm).show_machine(self._machine)

    def _refuse(self, why: str) -> None:
        self.notify(why, severity="error", markup=False)
        self.query_one(ConfigForm).focus_first(self._draft.problems)


def _with_script(presets: Sequence[Preset]) -> list[Preset]:
    """Returns the user's presets, which are found first by a name, the user's script, and the built-in ones."""
    users = [preset for preset in presets if not preset.builtin]
    return [*users, MY_SCRIPT, *presets[len(users) :]]


def _conflicting_runs(config: RunConfig, runs_dir: Path, machine: Machine) -> list[RunInfo]:
    """Returns the live runs that have devices which a launch would take."""
    from tuiapp.trainers.experiments.holders import all_held, conflicting_runs

    runs = conflicting_runs(place(config, machine), all_held(runs_dir), read_settings()[0])
    return [summarise(run) for run in runs]


def _look_for_runs(screen: ConfigureScreen, runs_dir: Path) -> None:
    """Finds in a thread which live runs have which devices, and how long earlier ones took."""
    # What the form asks for then is imported here, too.
    import tuiapp.library.queue_words
    import tuiapp.trainers.experiments.sweep  # noqa: F401
    from tuiapp.trainers.experiments.holders import all_held
    from tuiapp.trainers.experiments.pace import recent

    # The program and its event loop may have ended meanwhile; runs on a disk that fails are not known.
    with contextlib.suppress(RuntimeError, OSError):
        screen.call_later(screen.take_held, all_held(runs_dir), read_settings()[0])
        screen.call_later(screen.take_recent, recent(runs_dir))


def _question(holders: Sequence[RunInfo]) -> Choice:
    names = "\n".join(map(title, holders[:NAMES]))
    unnamed = f"\nand {plural(len(holders) - NAMES, 'more run')}" if len(holders) > NAMES else ""
    return Choice(
        "The devices are in use",
        f"They are used by\n{names}{unnamed}\n \nA queued run starts when they are free.",
        [
            ("queue", "Queue it", "primary"),
            ("launch", "Launch all the same", "default"),
            ("cancel", "Back to the form", "default"),
        ],
    )


def inspect_for(screen: ConfigureScreen) -> None:
    """Inspects this machine, and the backends' interpreters, in a thread and gives the results to a screen."""
    machine, problem = None, ""
    try:
        machine = inspect_machine()
    except Exception as error:  # Not fatal: a launch inspects the machine again.
        problem = f"Cannot detect devices: {error}"
    # The program and its event loop may have ended meanwhile.
    with contextlib.suppress(RuntimeError):
        screen.call_later(screen.take_machine, machine, problem)
        if any(environment.installed is None for environment in find_environments()):
            inspect_environments()
            screen.call_later(screen.take_environments)
