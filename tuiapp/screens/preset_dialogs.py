"""Dialogs that save, rename, duplicate and delete the user's presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.app import App

from trainers.config.run_config import RunConfig
from trainers.state.text import format_path, sanitize, sanitize_lines
from tuiapp.library.presets import (
    Preset,
    PresetError,
    delete_preset,
    list_presets,
    rename_preset,
    save_preset,
)
from tuiapp.screens.confirm import Choice
from tuiapp.screens.save_preset import SavePreset
from tuiapp.widgets.preset_list import Change


def can_be_loaded(app: App[Any], preset: Preset) -> bool:
    """Whether a preset can be used; notifies the reason if not."""
    if preset.error is not None:
        words = "\n".join(sanitize_lines(str(preset.error)))
        app.notify(words, title="This preset cannot be used", severity="error", timeout=15, markup=False)
    return preset.error is None


async def confirm_save(app: App[Any], config: RunConfig, loaded: Preset | None) -> Path | None:
    """Saves a user preset, asking before it overwrites one, and returns its file or None; must run in a worker."""
    # Those on disk now: the screen's list may be stale.
    existing = _names()
    suggested = loaded.name if loaded and loaded.name in existing else ""
    while True:
        described = loaded.description if loaded and suggested == loaded.name else ""
        question = SavePreset(suggested=suggested, existing=existing, description=described)
        wanted = await app.push_screen_wait(question)
        if wanted is None:
            return None
        overwrite = wanted.name in existing
        if not overwrite or await app.push_screen_wait(_overwrite_question(wanted.name)) == "overwrite":
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
            own=preset.name if renames else "",
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


def _overwrite_question(name: str) -> Choice:
    return Choice(
        f"Overwrite {name}?",
        "The form's values replace those of the preset; comments in its file stay.",
        [("cancel", "Cancel", "default"), ("overwrite", "Overwrite", "warning")],
    )
