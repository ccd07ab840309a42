"""Configure, driven by keys: the form and the launch."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Button, Static

from tests.kit.configure_app import Launches, Start, field, screen, type_into, until, words
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.launch import LaunchError
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.option_field import OptionField


async def test_command_names_runs_dir_and_is_quoted(start: Start, tmp_path: Path) -> None:
    async with start(runs_dir=tmp_path / "my runs") as pilot:
        assert screen(pilot).command == f"tuiapp run --runs-dir '{tmp_path}/my runs'"


@pytest.mark.nightly
async def test_command_is_copied(start: Start) -> None:
    async with start() as pilot:
        await type_into(pilot, "seed", "7")
        await pilot.press("ctrl+y")
        assert pilot.app.clipboard == "tuiapp run --set seed=7"


@pytest.mark.nightly
async def test_only_what_applies_is_shown(start: Start) -> None:
    async with start() as pilot:
        assert not field(pilot, "momentum").display
        assert not field(pilot, "device_ids").display
        field(pilot, "optimizer").query_one(ChoiceInput).take("sgd")
        await pilot.pause()
        assert field(pilot, "momentum").display
        await type_into(pilot, "momentum", "nonsense")
        field(pilot, "optimizer").query_one(ChoiceInput).take("adam")
        await pilot.pause()
        assert screen(pilot).command == "tuiapp run"


@pytest.mark.nightly
async def test_facts_follow_the_form(start: Start) -> None:
    async with start(preset="quickstart") as pilot:
        assert "2 CPU ranks (gloo) · 24 examples" in words(pilot, "#facts")
        await type_into(pilot, "devices", "4")
        assert "4 CPU ranks (gloo) · 12 examples" in words(pilot, "#facts")
        assert "29 steps per epoch" in words(pilot, "#facts")
        assert "29 steps per epoch · 870 in all · 225,226 parameters" in words(pilot, "#facts")
        assert "45 examples per epoch left out" in words(pilot, "#facts")
        assert "per device, " in words(pilot, "#facts")


@pytest.mark.nightly
async def test_form_is_usable_before_the_machine_is_known(start: Start, machine: Machine) -> None:
    async with start(machine=None) as pilot:
        await type_into(pilot, "epochs", "5")
        screen(pilot).call_later(screen(pilot).take_machine, machine)
        await until(pilot, lambda: "2 CPU ranks" in words(pilot, "#facts"))
        assert screen(pilot).command == "tuiapp run --set epochs=5"


async def test_launch_gets_what_the_form_holds(start: Start, launches: Launches) -> None:
    launches.error = LaunchError("Cannot create a run directory in /nowhere: [red]Permission denied.")
    async with start(preset="quickstart") as pilot:
        await type_into(pilot, "epochs", "3")
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert [config.epochs for config in launches.configs] == [3]
        assert "[red]Permission denied." in words(pilot, "#failure")
        assert screen(pilot).query_one("#failure-scroll").display
        assert field(pilot, "epochs").text == "3"
        assert not screen(pilot).launching
        await type_into(pilot, "epochs", "4")
        assert not screen(pilot).query_one("#failure-scroll").display


@pytest.mark.nightly
async def test_run_is_launched_once(start: Start, launches: Launches) -> None:
    async with start() as pilot:
        screen(pilot).launching = True
        await pilot.pause()
        assert str(screen(pilot).query_one("#launch", Button).label) == "Starting…"
        await pilot.press("ctrl+r")
        await pilot.app.workers.wait_for_complete()
        assert launches.configs == []


@pytest.mark.nightly
async def test_every_field_can_be_reached_with_keys_on_a_small_screen(start: Start) -> None:
    async with start(size=(80, 24)) as pilot:
        form = screen(pilot).query_one(ConfigForm)
        shown = [one for one in screen(pilot).query(OptionField) if one.display]
        shown[0].focus_control()
        await pilot.pause()
        for one in shown:
            assert one.has_focus_within
            # It is scrolled to after the next picture.
            await until(pilot, lambda one=one: form.content_region.contains_region(one.region))  # type: ignore[misc]
            await pilot.press("down")
            await pilot.pause()
        assert screen(pilot).query_one("#command").region.bottom <= 24


@pytest.mark.nightly
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_help_of_a_field_can_be_read_to_its_end(start: Start, size: tuple[int, int]) -> None:
    async with start(size=size) as pilot:
        await until(pilot, lambda: screen(pilot).is_mounted)
        form = screen(pilot).query_one(ConfigForm)
        for key in ("backend", "model", "dataset", "seed"):
            field(pilot, key).focus_control()
            await pilot.pause()
            shown = form.query_one("#help", Static)
            is_over = shown.styles.height is not None and shown.styles.height.is_auto
            told = str(shown.content) if is_over else str(form._border_subtitle)
            assert told in (field(pilot, key).help, f"{field(pilot, key).help} · several are a sweep: A, B or A..B")
            if not is_over:
                assert len(told) <= form.outer_size.width - 6
            elif size == (80, 24):
                await until(pilot, lambda: form.query_one("#help").size.height > 1)
