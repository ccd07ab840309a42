"""What a launch would do: devices, steps, memory, and the command that does the same."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Button, Static

from trainers.contract.config import OPTIONS
from trainers.contract.machine import Machine
from tuiapp.state.draft import Draft, device_words
from tuiapp.state.text import MISSING, format_bytes, sanitize, sanitize_lines

LABEL_CELLS = 10

FAINT = "$foreground 60%"
"""The style of what is read second."""


class LaunchFacts(Vertical):
    """Stays below the form: the facts that follow from it, what stands in the way, the command, and the button."""

    DEFAULT_CSS = """
    LaunchFacts {
        height: auto;

        #facts-row { height: auto; }
        #facts { width: 1fr; height: auto; }
        #launch { width: auto; min-width: 15; }
        #failure-scroll { height: auto; max-height: 6; display: none; }
        #failure { height: auto; color: $text-error; }
        #command-scroll { height: auto; max-height: 4; }
        #command { height: auto; }

    }
    """

    launching: reactive[bool] = reactive(False, init=False)
    """Whether a run is being started."""

    class LaunchRequested(Message):
        """The user pressed the button."""

    def compose(self) -> ComposeResult:  # noqa: D102
        with VerticalScroll(id="failure-scroll", can_focus=False):
            yield Static(id="failure")
        with Horizontal(id="facts-row"):
            yield Static(id="facts")
            yield Button("Launch ^r", variant="success", id="launch")
        with VerticalScroll(id="command-scroll", can_focus=False):
            yield Static(id="command")

    def show(self, draft: Draft, machine: Machine | None, command: str | None, failure: str) -> None:
        """Show what follows from a draft.

        Args:
            draft: What the form holds.
            machine: What this machine has; None while that is being found out.
            command: The command that does the same; None while a field cannot be read.
            failure: Why the last launch did not work, or "".
        """
        general = "\n".join(filter(None, (failure, draft.problems.get("", ""))))
        self.query_one("#failure-scroll").display = bool(general)
        self.query_one("#failure", Static).update(Content("✗ " + "\n".join(sanitize_lines(general))))
        self.query_one("#facts", Static).update(self._facts(draft, machine))
        self.query_one("#command", Static).update(self._command(draft, command))

    def watch_launching(self, launching: bool) -> None:
        """Say that a run is being started, and take no second order."""
        button = self.query_one("#launch", Button)
        button.disabled = launching
        button.label = Content("Starting…" if launching else "Launch ^r")

    @on(Button.Pressed)
    def _ask_for_launch(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.LaunchRequested())

    @staticmethod
    def _facts(draft: Draft, machine: Machine | None) -> Content:
        wrong = [option.label for key, option in OPTIONS.items() if key in draft.problems]
        devices = _devices(draft, machine)
        if wrong:
            devices = Content.styled(f"✗ see above: {', '.join(wrong)}", "$text-error")
        rows = (("Devices", devices), ("Training", _training(draft)), ("Model", _model(draft, machine)))
        return Content("\n").join(Content.assemble((name.ljust(LABEL_CELLS), FAINT), words) for name, words in rows)

    @staticmethod
    def _command(draft: Draft, command: str | None) -> Content:
        if command is not None:
            return Content.assemble(
                ("$ ", FAINT),
                (sanitize(command), "$text-accent"),
            )
        labels = ", ".join(option.label for key, option in OPTIONS.items() if key in draft.unreadable)
        return Content.styled(f"no command while {labels} cannot be read", FAINT)


def _devices(draft: Draft, machine: Machine | None) -> Content:
    if machine is None:
        return Content("looking for devices…")
    if draft.placed is None or draft.batch_per_device is None:
        return Content(MISSING)
    words = device_words(draft.placed)
    return Content(f"{words} · {draft.batch_per_device:,} examples a step on each")


def _training(draft: Draft) -> Content:
    per_epoch = MISSING if draft.steps_per_epoch is None else f"{draft.steps_per_epoch:,}"
    total = MISSING if draft.total_steps is None else f"{draft.total_steps:,}"
    return Content(f"{per_epoch} steps per epoch · {total} steps in all")


def _model(draft: Draft, machine: Machine | None) -> Content:
    if draft.parameters is None:
        return Content(MISSING)
    words = f"{draft.parameters:,} parameters"
    if draft.memory_bytes is None or draft.placed is None:
        return Content(words)
    words += f" · about {format_bytes(draft.memory_bytes)} per device"
    free = [
        gpu.memory_total_bytes - gpu.memory_used_bytes
        for gpu in (machine.gpus if machine else ())
        if gpu.uuid in draft.placed.device_ids
        and gpu.memory_total_bytes is not None
        and gpu.memory_used_bytes is not None
    ]
    return Content(f"{words}, {format_bytes(min(free))} free" if free else words)
