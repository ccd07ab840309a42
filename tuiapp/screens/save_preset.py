"""Asks for the name under which to save the form."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Label, Static

from tuiapp.library.presets import NAME_RULE, PresetError, check_name
from tuiapp.screens.dialog import Dialog


@dataclass(frozen=True, slots=True)
class PresetName:
    name: str
    description: str
    """One line; "" keeps that of an existing preset."""


class SavePreset(Dialog[PresetName | None]):
    """Asks for a checked name and a description to save, rename or duplicate; None on escape. Writes nothing itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel", id="dialog.cancel"),
        Binding("up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]

    def __init__(
        self,
        *,
        suggested: str,
        existing: Collection[str],
        title: str = "Save preset",
        does: str = "Save",
        description: str = "",
        overwrites: bool = True,
        own: str = "",
    ) -> None:
        """`own` is the name of a preset to rename; with `overwrites`, a name in `existing` needs a further question."""
        super().__init__()
        self._suggested, self._existing = suggested, existing
        self._title, self._does, self._description, self._overwrites = title, does, description, overwrites
        self._own = own

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(self._title)
            yield Label("Name")
            yield Input(self._suggested, placeholder="my-preset", max_length=64, id="name")
            yield Static(id="verdict")
            yield Label("Description (optional)")
            yield Input(self._description, placeholder="one line: what it is for", max_length=200, id="description")
            with Horizontal(id="buttons"):
                yield Button(self._does, variant="primary", id="save")
                yield Button("Cancel", id="cancel")

    def on_mount(self) -> None:
        self.query_one("#name", Input).focus()
        self._judge()

    @on(Input.Changed, "#name")
    def _judge(self) -> None:
        name, verdict = self._wanted, self.query_one("#verdict", Static)
        fault = self._fault()
        verdict.set_class(bool(fault) and bool(name), "-wrong")
        verdict.set_class(not fault and name in self._existing, "-warning")
        if not name:
            verdict.update(Content(NAME_RULE))
        elif fault:
            verdict.update(Content(f"✗ {fault}"))
        elif name in self._existing:
            verdict.update(Content("! A preset of that name exists; saving asks before overwriting it."))
        elif name == self._own:
            verdict.update(Content("✓ It keeps its name."))
        else:
            verdict.update(Content("✓ This name is available."))
        self.query_one("#save", Button).disabled = bool(fault)

    @on(Input.Submitted)
    @on(Button.Pressed, "#save")
    def _save(self) -> None:
        if not self._fault():
            self.dismiss(PresetName(self._wanted, self.query_one("#description", Input).value.strip()))

    @on(Button.Pressed, "#cancel")
    def _cancel(self) -> None:
        self.dismiss(None)

    @property
    def _wanted(self) -> str:
        return self.query_one("#name", Input).value.strip()

    def _fault(self) -> str:
        try:
            check_name(self._wanted)
        except PresetError as error:
            return str(error)
        taken = self._wanted in self._existing and not self._overwrites
        return "A preset of that name already exists." if taken else ""
