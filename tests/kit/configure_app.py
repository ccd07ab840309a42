"""What tests of the Configure screen share: a launcher that records, and hands and eyes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Static

from tests.kit.at_rest import until as until
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.launch import LaunchError
from tuiapp.widgets.choice_input import ChoiceInput
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.option_field import OptionField
from tuiapp.widgets.text_view import UNKNOWN_WIDTH, TextView


class Launches:
    """Stands in for `tuiapp.trainers.launch.launch`: records, and answers as it is told."""

    def __init__(self) -> None:
        self.configs: list[RunConfig] = []
        self.about = About()
        self.error: Exception | None = None

    def __call__(
        self, config: RunConfig, runs_dir: Path, machine: Machine | None = None, about: About | None = None
    ) -> RunDir:
        self.configs.append(config)
        self.about = about or About()
        raise self.error or LaunchError("no run is started in these tests")


Start = Callable[..., AbstractAsyncContextManager[Pilot[None]]]


def screen(pilot: Pilot[None]) -> ConfigureScreen:
    return next(one for one in pilot.app.screen_stack if isinstance(one, ConfigureScreen))


def field(pilot: Pilot[None], key: str) -> OptionField:
    return next(one for one in screen(pilot).query(OptionField) if one.option.key == key)


def words(pilot: Pilot[None], selector: str) -> str:
    """Returns what a widget shows, or would show with more room."""
    widget = screen(pilot).query_one(selector)
    if isinstance(widget, TextView):
        return "\n".join(map(str, widget.lines_for(UNKNOWN_WIDTH)))
    assert isinstance(widget, Static)
    return str(widget.content)


async def type_into(pilot: Pilot[None], key: str, text: str) -> None:
    """Put a text into a field as a person would; of a choice, take it."""
    await until(pilot, lambda: screen(pilot).is_mounted and bool(screen(pilot).query(OptionField)))
    if not field(pilot, key).display:
        # A rare one.
        screen(pilot).query_one(ConfigForm).focus_field(key)
        await until(pilot, lambda: field(pilot, key).has_focus_within)
    for choice in field(pilot, key).query(ChoiceInput):
        choice.take(text)
        await pilot.pause()
        return
    field(pilot, key).focus_control()
    await pilot.pause()
    await pilot.press("end", "ctrl+u", *text)
    await pilot.pause()
