"""Configure: presets on the left, the form on the right, what a launch would do beneath."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeAlias

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Footer, Static

from trainers.contract.config import OPTIONS, RunConfig
from trainers.contract.machine import Machine, inspect_machine
from trainers.contract.options import ConfigError
from trainers.contract.presets import Preset, list_presets
from trainers.contract.rundir import RunDir
from trainers.contract.runs import default_runs_dir
from trainers.launch import launch
from tuiapp.screens.keep_preset import delete_asking, save_asking
from tuiapp.state.draft import command_line, examine, machine_words, to_texts
from tuiapp.state.text import plural, sanitize, sanitize_lines
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.launch_facts import LaunchFacts
from tuiapp.widgets.preset_list import PresetList

Launcher: TypeAlias = Callable[[RunConfig, Path, Machine | None], RunDir]
"""Starts a run: `trainers.launch.launch`, or a test's stand-in."""


class ConfigureScreen(Screen[None]):
    """Where a run is put together and launched."""

    CSS_PATH = "configure.tcss"

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012, Textual's type
    VERTICAL_BREAKPOINTS = [(0, "-short"), (40, "-tall")]  # noqa: RUF012, Textual's type

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "launch", "Launch"),
        Binding("ctrl+s", "save", "Save"),
        Binding("ctrl+l", "focus_presets", "Presets"),
        Binding("ctrl+y", "copy_command", "Copy"),
        Binding("ctrl+o", "app.watch", "Watch run"),
        Binding("f1,question_mark", "app.toggle_help", "Keys"),
        Binding("ctrl+q", "app.leave", "Leave", priority=True),
        Binding("ctrl+z", "undo", "Undo load", show=False),
        Binding("f5", "restore", "Restore the preset's values", show=False),
        Binding("q", "app.leave", "Leave", show=False),
    ]

    launching: reactive[bool] = reactive(False, init=False)
    """Whether a run is being started."""

    class RunLaunched(Message):
        """A run has been started."""

        def __init__(self, run: RunDir) -> None:
            super().__init__()
            self.run = run

    class LaunchFailed(Message):
        """A run could not be started."""

        def __init__(self, error: Exception) -> None:
            super().__init__()
            self.error = error

    class MachineInspected(Message):
        """It is known what this machine has, or why that cannot be known."""

        def __init__(self, machine: Machine | None, problem: str = "") -> None:
            super().__init__()
            self.machine = machine
            self.problem = problem

    def __init__(
        self,
        *,
        runs_dir: Path,
        preset: str | None = None,
        config: RunConfig | None = None,
        machine: Machine | None = None,
        launcher: Launcher = launch,
    ) -> None:
        """Prepare the screen; the presets are read when it is shown.

        Args:
            runs_dir: Where runs are made.
            preset: The preset to start from; None for the defaults.
            config: What the form holds at first; None for the preset's values.
            machine: What this machine has; None to find out.
            launcher: Starts a run; called in a thread.
        """
        super().__init__()
        self._runs_dir = runs_dir
        self._machine = machine
        self._launcher = launcher
        self._presets = list_presets()
        self._preset = next((one for one in self._presets if one.name == preset and one.config), None)
        self._draft = examine(to_texts(config or self._base), self._base, machine)
        self._failure = ""
        self._before_load: tuple[Preset | None, dict[str, str]] | None = None

    def compose(self) -> ComposeResult:  # noqa: D102
        yield Static(id="machine")
        with Horizontal(id="body"):
            presets = PresetList(presets=self._presets, loaded=self._preset.name if self._preset else None)
            presets.border_title = "Presets"
            yield presets
            yield ConfigForm(texts=to_texts(self._draft.config))
        yield LaunchFacts()
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        """Show what is known, and find out what the machine has."""
        self.query_one(PresetList).focus()
        await self._show_machine()
        self._show()
        if self._machine is None:
            # A daemon thread, because a driver that does not answer must not keep the program from ending.
            threading.Thread(target=self._inspect, name="inspect-machine", daemon=True).start()

    def watch_launching(self, launching: bool) -> None:
        """Let the button say so."""
        self.query_one(LaunchFacts).launching = launching

    @property
    def command(self) -> str | None:
        """The command that does what a launch would do; None while a field cannot be read."""
        elsewhere = None if self._runs_dir == default_runs_dir() else str(self._runs_dir)
        return command_line(self._draft, self._preset.name if self._preset else None, elsewhere)

    @property
    def _base(self) -> RunConfig:
        return self._preset.config if self._preset and self._preset.config else RunConfig()

    @on(LaunchFacts.LaunchRequested)
    def action_launch(self) -> None:
        """Start a run with what the form holds."""
        if self.launching:
            return
        if self._draft.problems:
            self._refuse("Nothing is launched before what is marked has been put right.")
            return
        self._failure = ""
        self.launching = True
        self._show()
        self._launch(self._draft.config)

    @work(group="ask")
    async def action_save(self) -> None:
        """Ask for a name and save the form as a preset of the user's."""
        if not self._draft.is_sound:
            self._refuse("A preset is saved once what is marked has been put right.")
            return
        if path := await save_asking(self.app, self._draft.config, self._preset):
            self._read_presets(loaded=path.stem)

    def action_focus_presets(self) -> None:
        """Put the cursor into the list of presets, read anew: their files may have been edited by hand."""
        self._read_presets()
        self.query_one(PresetList).focus()

    def action_copy_command(self) -> None:
        """Copy the command to the terminal's clipboard."""
        if self.command is None:
            self._refuse("There is no command before what is marked has been put right.")
            return
        self.app.copy_to_clipboard(self.command)
        self.notify(sanitize(self.command), title="Copied", markup=False)

    def action_undo(self) -> None:
        """Bring back what the form held before the last load."""
        if self._before_load is not None:
            (self._preset, texts), self._before_load = self._before_load, None
            self._fill(texts)

    def action_restore(self) -> None:
        """Take back all changes to the preset, or to the defaults."""
        self._load(self._preset)

    @on(ConfigForm.ConfigChanged)
    def _examine_changes(self) -> None:
        self._failure = ""
        self._examine(self.query_one(ConfigForm).texts)

    @on(PresetList.PresetChosen)
    def _load_chosen(self, event: PresetList.PresetChosen) -> None:
        if event.preset.error is not None:
            words = "\n".join(sanitize_lines(str(event.preset.error)))
            self.notify(words, title="This preset cannot be used", severity="error", timeout=15, markup=False)
            return
        self._load(event.preset)

    @on(PresetList.DeleteRequested)
    @work(group="ask")
    async def _delete(self, event: PresetList.DeleteRequested) -> None:
        if await delete_asking(self.app, event.preset):
            self._read_presets()

    @on(RunLaunched)
    def _launch_ended(self) -> None:
        self.launching = False

    @on(LaunchFailed)
    def _show_failure(self, event: LaunchFailed) -> None:
        self.launching = False
        if isinstance(event.error, ConfigError):
            self._draft = self._draft.with_problems(event.error.problems)
        else:
            self._failure = str(event.error) or repr(event.error)
        self._show()
        self._focus_problem()

    @on(MachineInspected)
    async def _take_machine(self, event: MachineInspected) -> None:
        self._machine = event.machine
        self._failure = event.problem
        await self._show_machine()
        self._examine(self.query_one(ConfigForm).texts)

    @work(thread=True, group="launch")
    def _launch(self, config: RunConfig) -> None:
        try:
            run = self._launcher(config, self._runs_dir, self._machine)
        except Exception as error:  # Whatever it is: it is shown, and the form with all that was typed stays.
            self.post_message(self.LaunchFailed(error))
        else:
            self.post_message(self.RunLaunched(run))

    def _inspect(self) -> None:
        try:
            found = self.MachineInspected(inspect_machine())
        except Exception as error:  # A machine that cannot be looked at is no reason to end; a launch looks again.
            found = self.MachineInspected(None, f"Cannot look for devices: {error}")
        # The program may have ended meanwhile, and its event loop with it.
        with contextlib.suppress(RuntimeError):
            self.post_message(found)

    def _load(self, preset: Preset | None) -> None:
        lost = len(self._draft.changed)
        self._before_load = (self._preset, self.query_one(ConfigForm).texts)
        self._preset = preset
        self._fill(to_texts(self._base))
        if lost:
            self.notify(f"{plural(lost, 'change')} dropped. Ctrl+Z brings back what was there.", markup=False)

    def _fill(self, texts: dict[str, str]) -> None:
        self._failure = ""
        self.query_one(ConfigForm).load(texts)
        self._rebase(self._preset)

    def _read_presets(self, loaded: str = "") -> None:
        """List the presets as they are on disk now; the form's is the one named, or else the same as before."""
        self._presets = list_presets()
        name = loaded or (self._preset.name if self._preset else "")
        self._rebase(next((one for one in self._presets if one.name == name and one.config), None))

    def _rebase(self, preset: Preset | None) -> None:
        """Compare what the form holds with another preset, or with the defaults."""
        self._preset = preset
        self.query_one(PresetList).show(self._presets, preset.name if preset else None)
        self._examine(self.query_one(ConfigForm).texts)

    def _examine(self, texts: dict[str, str]) -> None:
        self._draft = examine(texts, self._base, self._machine)
        self._show()

    def _show(self) -> None:
        form = self.query_one(ConfigForm)
        form.show(self._draft)
        count = len(self._draft.changed)
        name = sanitize(self._preset.name) if self._preset else "Defaults"
        form.border_title = Content(f"{name} • {plural(count, 'change')}" if count else name)
        self.query_one(LaunchFacts).show(self._draft, self._machine, self.command, self._failure)

    async def _show_machine(self) -> None:
        self.query_one("#machine", Static).update(
            Content.assemble(("tuiapp", "bold $text-primary"), "  ", machine_words(self._machine))
        )
        if self._machine is not None:
            await self.query_one(ConfigForm).show_machine(self._machine)

    def _refuse(self, why: str) -> None:
        self.notify(why, severity="error", markup=False)
        self._focus_problem()

    def _focus_problem(self) -> None:
        if wrong := next((key for key in OPTIONS if key in self._draft.problems), None):
            self.query_one(ConfigForm).focus_field(wrong)
