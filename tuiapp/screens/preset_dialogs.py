"""Dialogs of the form: presets are saved, renamed, duplicated and deleted, and a backend's environment is made."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Label, Static

from tuiapp.library.environments import CancelledError, CreateError, create, describe
from tuiapp.library.presets import (
    NAME_RULE,
    Preset,
    PresetError,
    check_name,
    delete_preset,
    list_presets,
    rename_preset,
    save_preset,
)
from tuiapp.screens.dialog import Choice, Dialog, Form
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.state.text import format_bytes, format_path, sanitize, sanitize_lines
from tuiapp.widgets.preset_list import Change


@dataclass(frozen=True, slots=True)
class PresetName:
    name: str
    description: str
    """One line; "" keeps that of an existing preset."""


class SavePreset(Form[PresetName | None]):
    """Asks for a name and a description to save, rename or duplicate a preset."""

    BINDINGS: ClassVar[list[BindingType]] = [
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
        renamed: str = "",
    ) -> None:
        """`renamed` is a preset's name now; with `overwrites`, a name in `existing` needs a further question."""
        super().__init__(title, does)
        self._suggested, self._existing = suggested, existing
        self._description, self._overwrites, self._renamed = description, overwrites, renamed

    def fields(self) -> ComposeResult:
        yield Label("Name")
        yield Input(self._suggested, placeholder="my-preset", max_length=64, id="name")
        yield Static(id="verdict")
        yield Label("Description (optional)")
        yield Input(self._description, placeholder="one line: what it is for", max_length=200, id="description")

    def verdict(self, fault: str) -> tuple[str, str]:
        name = self._wanted
        if not name:
            return NAME_RULE, ""
        if fault:
            return super().verdict(fault)
        if name in self._existing:
            return "! A preset of that name exists; saving asks before overwriting it.", "-warning"
        return ("✓ It keeps its name." if name == self._renamed else "✓ This name is available."), ""

    def result(self) -> PresetName:
        return PresetName(self._wanted, self.query_one("#description", Input).value.strip())

    @property
    def _wanted(self) -> str:
        return self.query_one("#name", Input).value.strip()

    def fault(self) -> str:
        try:
            check_name(self._wanted)
        except PresetError as error:
            return str(error)
        taken = self._wanted in self._existing and not self._overwrites
        return "A preset of that name already exists." if taken else ""


def can_be_loaded(app: App[Any], preset: Preset) -> bool:
    """Whether a preset can be used; notifies the reason if not."""
    if preset.error is not None:
        reason = "\n".join(sanitize_lines(str(preset.error)))
        app.notify(reason, title="This preset cannot be used", severity="error", timeout=15, markup=False)
    return preset.error is None


async def confirm_save(app: App[Any], config: RunConfig, loaded: Preset | None) -> Path | None:
    """Saves a user preset, asking before it overwrites one, and returns its file or None; must run in a worker."""
    # Those on disk now: the screen's list may be stale.
    existing = _names()
    suggested = loaded.name if loaded and loaded.name in existing else ""
    while True:
        described = loaded.description if loaded and suggested == loaded.name else ""
        dialog = SavePreset(suggested=suggested, existing=existing, description=described)
        wanted = await app.push_screen_wait(dialog)
        if wanted is None:
            return None
        overwrite = wanted.name in existing
        question = Choice(
            f"Overwrite {wanted.name}?",
            "The form's values replace those of the preset; comments in its file stay.",
            [("cancel", "Cancel", "default"), ("overwrite", "Overwrite", "warning")],
        )
        if not overwrite or await app.push_screen_wait(question) == "overwrite":
            break
        suggested = wanted.name
    try:
        path = save_preset(wanted.name, config, wanted.description, overwrite=overwrite)
    except PresetError as error:
        app.notify(sanitize(str(error)), title="Not saved", severity="error", markup=False)
        return None
    app.notify(format_path(path), title="Saved", markup=False)
    return path


async def confirm_change(app: App[Any], preset: Preset, change: Change) -> str | None:
    """Asks, then changes a preset; returns its new name, "" if deleted, None if unchanged. Must run in a worker."""
    if change == "delete":
        return "" if await _delete(app, preset) else None
    renames = change == "rename"
    if preset.config is None or (renames and preset.builtin):
        why = "is built in and cannot be renamed; duplicate it" if preset.builtin else "cannot be read; fix its file"
        app.notify(sanitize(f"{preset.name} {why}."), severity="warning", markup=False)
        return None
    wanted = await app.push_screen_wait(
        SavePreset(
            suggested=preset.name if renames else f"{preset.name[:59]}-copy",
            existing=_names() - ({preset.name} if renames else set()),
            title=f"{change.capitalize()} preset",
            does=change.capitalize(),
            description=preset.description,
            overwrites=False,
            renamed=preset.name if renames else "",
        )
    )
    if wanted is None:
        return None
    try:
        if not renames:
            save_preset(wanted.name, preset.config, wanted.description)
        elif wanted.name != preset.name:
            rename_preset(preset.name, wanted.name)
        if renames and wanted.description != preset.description:
            save_preset(wanted.name, preset.config, wanted.description, overwrite=True)
    except PresetError as error:
        app.notify(sanitize(str(error)), title=f"Not {change}d", severity="error", markup=False)
        return None
    return wanted.name


async def _delete(app: App[Any], preset: Preset) -> bool:
    if preset.builtin:
        app.notify(f"{preset.name} is built in and cannot be deleted.", severity="warning", markup=False)
        return False
    question = Choice(
        f"Delete {preset.name}?",
        f"{format_path(preset.path)} will be deleted; runs launched from it stay.",
        [("keep", "Keep it", "default"), ("delete", "Delete", "error")],
    )
    if await app.push_screen_wait(question) != "delete":
        return False
    try:
        delete_preset(preset.name)
    except PresetError as error:
        app.notify(sanitize(str(error)), title="Not deleted", severity="error", markup=False)
        return False
    return True


def _names() -> set[str]:
    return {preset.name for preset in list_presets() if not preset.builtin}


class EnvironmentDialog(Dialog[bool]):
    """Returns whether the environment was made. Escape cancels at any time, and leaves nothing behind."""

    MANUAL = "backends"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="dialog.cancel"),
        Binding("left,up", "app.focus_previous", "Previous", id="dialog.previous", show=False),
        Binding("right,down", "app.focus_next", "Next", id="dialog.next", show=False),
    ]

    def __init__(self, framework: str, why: str, *, gpus: bool, older: bool, again: bool) -> None:
        """`why` says what is missing now; with `gpus` it is made for CUDA; `again`: in place of the one there is.

        `older`: for CUDA 12.
        """
        super().__init__()
        self._framework, self._why, self._again = framework, why, again
        self._cuda, self._older = gpus, older
        self._cancelled = threading.Event()
        self._making = False
        self._bytes, self._line = 0, ""

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(f"Environment {sanitize(self._framework)}")
            yield Static(id="text", markup=False)
            yield Static(id="progress", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Create", variant="primary", id="create")
                yield Button("Cancel", id="cancel")

    def on_mount(self) -> None:
        try:
            made = describe(self._framework, cuda=self._cuda, older=self._older)
        except CreateError as error:
            self._fail(str(error))
            return
        self._explain(f"{self._why}\n\nCreate makes a virtual environment for its ranks,\n{made}")
        self.query_one("#create").focus()

    def on_unmount(self) -> None:
        self._cancelled.set()

    @on(Button.Pressed, "#create")
    def _begin(self) -> None:
        if not self._making:
            self._making = True
            self.query_one("#create").display = False
            self.query_one("#progress").display = True
            self._show("starting…")
            self._create()

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self._cancelled.set()
        if self._making:
            self._show("cancelling…")
        else:
            self.dismiss(False)

    @work(thread=True, group="create")
    def _create(self) -> None:
        try:
            create(
                self._framework, self._tell, cuda=self._cuda, older=self._older, again=self._again,
                cancelled=self._cancelled,
            )  # fmt: skip
        except CancelledError:
            self.call_later(self._close, False)
        except CreateError as error:
            self.call_later(self._fail, str(error))
        else:
            self.call_later(self._close, True)

    def _tell(self, line: str, size: int) -> None:
        """Shows a line of the installer and the bytes so far; called by the thread that makes the environment."""
        self._bytes = max(self._bytes, size)
        self.call_later(self._show, line)

    def _show(self, line: str) -> None:
        progress = self.query_one("#progress", Static)
        if line and not line.startswith("WARNING"):
            self._line = sanitize(line)
        progress.update(f"{format_bytes(self._bytes)} on the disk\n{self._line}")

    def _close(self, made: bool) -> None:
        # What `dismiss` returns is not for a handler of its own screen to wait for.
        self.dismiss(made)

    def _fail(self, why: str) -> None:
        self._making = False
        self._explain("✗ " + why)
        self.query_one("#create").display = self.query_one("#progress").display = False
        self.query_one("#cancel", Button).label = "Close"
        self.query_one("#cancel").focus()

    def _explain(self, text: str) -> None:
        self.query_one("#text", Static).update("\n".join(sanitize_lines(text)))
