"""Saving and deleting the user's presets: all that is asked on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.app import App

from trainers.contract.config import RunConfig
from trainers.contract.presets import Preset, PresetError, delete_preset, list_presets, save_preset
from tuiapp.screens.confirm import Choice
from tuiapp.screens.save_preset import SavePreset
from tuiapp.state.text import sanitize


async def save_asking(app: App[Any], config: RunConfig, loaded: Preset | None) -> Path | None:
    """Save a configuration as a preset of the user's, asking before one is overwritten; must run in a worker.

    Args:
        app: Asks and tells.
        config: What is saved.
        loaded: Where it came from: if that is one of the user's, its name is the one to start with.

    Returns:
        The preset's file; None when nothing was written.
    """
    # Those on disk now: some may have come or gone since the screen listed them.
    existing = {preset.name for preset in list_presets() if not preset.builtin}
    suggested = loaded.name if loaded and loaded.name in existing else ""
    while True:
        wanted = await app.push_screen_wait(SavePreset(suggested=suggested, existing=existing))
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
    app.notify(sanitize(str(path)), title="Saved", markup=False)
    return path


async def delete_asking(app: App[Any], preset: Preset) -> bool:
    """Delete a preset of the user's; must run in a worker.

    Returns:
        Whether it is gone.
    """
    if preset.builtin:
        app.notify(f"{preset.name} is built in and cannot be deleted.", severity="warning", markup=False)
        return False
    question = Choice(
        f"Delete {preset.name}?",
        f"{preset.path} is removed; runs made with it stay.",
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


def _overwrite_question(name: str) -> Choice:
    return Choice(
        f"Overwrite {name}?",
        "The preset of that name gets the form's values; comments in its file stay.",
        [("cancel", "Cancel", "default"), ("overwrite", "Overwrite", "warning")],
    )
