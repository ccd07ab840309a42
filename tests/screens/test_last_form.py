"""The form opens as it was left."""

from __future__ import annotations

import stat

import msgspec
import pytest

from tests.kit.configure_app import Launches, Start, field, screen, type_into, until
from tuiapp.library.chart_view import LastForm, form_path, last_form, read_last_form
from tuiapp.library.presets import delete_preset, save_preset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.view.draft import to_texts


def title(pilot: object) -> str:
    return str(screen(pilot).query_one("ConfigForm").border_title)  # type: ignore[arg-type]


@pytest.mark.nightly
async def test_the_form_opens_as_it_was_left_and_a_key_brings_the_preset_back(start: Start) -> None:
    save_preset("mine", RunConfig(epochs=9))
    async with start(preset="mine", remembers=True) as pilot:
        assert "last used" not in title(pilot)
        await type_into(pilot, "learning_rate", "0.1, 0.01")
        await type_into(pilot, "name", "once")
    assert stat.S_IMODE(form_path().stat().st_mode) == 0o600
    async with start(preset="quickstart", remembers=True) as pilot:
        assert [field(pilot, key).text for key in ("epochs", "learning_rate", "name")] == ["9", "0.1, 0.01", ""]
        assert "mine • 1 change · last used, F5: quickstart" in title(pilot)
        await pilot.press("f5")
        await until(pilot, lambda: "last used" not in title(pilot))
        assert screen(pilot).command == "tuiapp run quickstart"
        await pilot.press("ctrl+z")
        await until(pilot, lambda: field(pilot, "learning_rate").text == "0.1, 0.01")
    delete_preset("mine")
    async with start(preset="quickstart", remembers=True) as pilot:
        assert "Defaults • 2 changes · last used" in title(pilot)
        assert field(pilot, "epochs").text == "9"


async def test_what_is_launched_is_kept_at_once(start: Start, launches: Launches) -> None:
    async with start(remembers=True) as pilot:
        await type_into(pilot, "epochs", "3")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: bool(launches.configs))
        assert read_last_form() == (LastForm(changes={"epochs": "3"}), "")


def test_what_is_kept_is_what_differs_from_the_defaults() -> None:
    texts = {**to_texts(RunConfig(epochs=3)), "name": "x", "tags": "y"}
    assert msgspec.to_builtins(last_form("mlp", texts)) == {"schema": 1, "preset": "mlp", "changes": {"epochs": "3"}}
