"""The picture that stands before the fields do, and the keys that are typed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest
from textual import events
from textual.geometry import Size
from textual.pilot import Pilot
from textual.strip import Strip

from tests.screens.configure_app import Start, field, screen, until
from tests.screens.test_app import make_run
from trainers.config.machine import Machine
from trainers.config.run_config import RunConfig
from tuiapp.app import TuiApp
from tuiapp.library.presets import save_preset
from tuiapp.screens.configure import ConfigureScreen
from tuiapp.screens.confirm import Choice
from tuiapp.screens.requests import CloneRun
from tuiapp.screens.run import RunScreen
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.preset_list import PresetList

Cell: TypeAlias = tuple[str, object, object]


@pytest.fixture(autouse=True)
def _patient_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may take long until a key is answered."""
    for limit in ("PATIENCE_S", "READY_PATIENCE_S"):
        monkeypatch.setattr(f"tuiapp.terminal.key_queue.{limit}", 60.0)


def cells(pilot: Pilot[None]) -> list[list[Cell]]:
    """Each line of the screen: characters with their colours; of a space only the ground can be seen."""
    lines: list[list[Cell]] = []
    for strip in pilot.app.screen._compositor.render_strips():
        styled = [(text, style) for text, style, _ in strip]
        lines.append(
            [
                (character, style.color if style and character != " " else None, style.bgcolor if style else None)
                for text, style in styled
                for character in text
            ]
        )
    return lines


class LateFields:
    """Leaves the form a picture until it is told to make the fields."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._build, self._put_off = ConfigForm.build, False
        patch.setattr(ConfigForm, "build", lambda form: self._wait())

    async def _wait(self) -> None:
        self._put_off = True

    async def picture(self, pilot: Pilot[None]) -> ConfigForm:
        """The form, once the fields were to be made: what is before them stands."""
        await until(pilot, lambda: self._put_off)
        return screen(pilot).query_one(ConfigForm)

    async def fields(self, pilot: Pilot[None], form: ConfigForm) -> None:
        """Make the fields."""
        screen(pilot).call_later(self._build, form)
        await until(pilot, lambda: form.is_built)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> LateFields:
    return LateFields(monkeypatch)


def lines(pilot: Pilot[None]) -> list[str]:
    """What stands on the screen."""
    return ["".join(character for character, *_ in line) for line in cells(pilot)]


@pytest.mark.parametrize("preset", ["quickstart", "d2l-torch", "script"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 40), (200, 60)])
async def test_the_picture_is_what_the_fields_show(
    size: tuple[int, int], preset: str, tmp_path: Path, machine: Machine, late: LateFields
) -> None:
    if preset == "script":
        save_preset(preset, RunConfig(backend="script", script=__file__, arguments="--epochs 5"))
    app = TuiApp(runs_dir=tmp_path, preset=preset, machine=machine)
    async with app.run_test(size=size) as pilot:
        form = await late.picture(pilot)
        # The screen knows its breakpoints once it has been laid out.
        assert screen(pilot).has_class("-high" if size[1] >= 52 else "-tall" if size[1] >= 40 else "-short")
        region = form.region
        before = cells(pilot)
        await late.fields(pilot, form)
        after = cells(pilot)
        # The bar that scrolls is all that comes with the fields.
        bar = region.right - 3 if form.show_vertical_scrollbar else size[0]
        for y in range(region.y, region.bottom):
            shown = [(*cell, x) for x, cell in enumerate(before[y]) if region.x <= x < region.right and x != bar]
            later = [(*cell, x) for x, cell in enumerate(after[y]) if region.x <= x < region.right and x != bar]
            assert shown == later, (y, "".join(cell[0] for cell in before[y]), "".join(cell[0] for cell in after[y]))


async def test_keys_typed_before_the_fields_are_there_reach_them(
    tmp_path: Path, machine: Machine, late: LateFields
) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    async with app.run_test() as pilot:
        form = await late.picture(pilot)
        # From the presets past backend, model, data and platform to the number of devices.
        keys = [*["tab"] * 5, "4", "tab", "tab", "9"]
        for key in keys:
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        # Keys that wait for the fields give no rest.
        await pilot.pause(0)
        await late.fields(pilot, form)
        await until(pilot, lambda: screen(pilot).takes_keys and field(pilot, "devices").text == "4")


async def test_a_click_on_the_picture_goes_to_the_field(tmp_path: Path, machine: Machine, late: LateFields) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    async with app.run_test(size=(120, 45)) as pilot:
        form = await late.picture(pilot)
        await until(pilot, lambda: any("Epochs   " in text for text in lines(pilot)))
        (y,) = (number for number, text in enumerate(lines(pilot)) if "Epochs   " in text)
        x = lines(pilot)[y].index("Epochs") + 16
        for kind in (events.MouseDown, events.MouseUp):
            app.post_message(kind(None, x, y, 0, 0, 1, False, False, False))
        for key in ("end", "ctrl+u", "8"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await late.fields(pilot, form)
        await until(pilot, lambda: field(pilot, "epochs").text == "8")


async def test_keys_that_arrive_together_go_where_those_before_them_lead(start: Start) -> None:
    async with start() as pilot:
        field(pilot, "epochs").focus_control()
        await pilot.pause()
        for key in ("4", "tab", "9", "6", "shift+tab", "8"):
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: field(pilot, "max_steps").text == "96")
        await until(pilot, lambda: field(pilot, "epochs").text == "8")


async def test_keys_after_one_that_opens_a_question_answer_it(start: Start, tmp_path: Path) -> None:
    async with start() as pilot:
        for key, character in (("ctrl+s", None), ("a", "a"), ("b", "b"), ("enter", None)):
            pilot.app.post_message(events.Key(key, character))
        saved = tmp_path / "home" / "config" / "tuiapp" / "presets" / "ab.toml"
        await until(pilot, saved.exists)
        assert not isinstance(pilot.app.screen, Choice)


async def test_beneath_a_run_there_is_nothing_until_it_is_seen(tmp_path: Path, machine: Machine) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine, run=make_run(tmp_path))
    async with app.run_test() as pilot:
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.pause(0.2)
        beneath = app.screen_stack[0]
        assert not isinstance(beneath, ConfigureScreen)
        assert not beneath.query("*").exclude(".-textual-system")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen) and app.screen.takes_keys)
        assert app.screen_stack == [beneath, app.screen]


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_nothing_jumps_after_the_first_picture(
    size: tuple[int, int], tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The presets are drawn at the one size that they keep, and each has its lines from the first time on."""
    drawn: set[tuple[Size, Size]] = set()
    draw = PresetList.render_line

    def remember(presets: PresetList, y: int) -> Strip:
        drawn.add((presets.size, presets.virtual_size))
        return draw(presets, y)

    monkeypatch.setattr(PresetList, "render_line", remember)
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    async with app.run_test(size=size) as pilot:
        form = screen(pilot).query_one(ConfigForm)
        await until(pilot, lambda: form.is_built)
        await pilot.pause()
        assert len(drawn) == 1


async def test_beneath_a_run_the_form_can_be_filled_before_it_is_there(tmp_path: Path, machine: Machine) -> None:
    run = make_run(tmp_path)
    app = TuiApp(runs_dir=tmp_path, machine=machine, run=run)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        app.screen.post_message(CloneRun(run, RunConfig(model="mlp", devices=4)))
        await until(pilot, lambda: isinstance(app.screen, ConfigureScreen) and app.screen.takes_keys)
        assert field(pilot, "devices").text == "4"
        assert f"--like {run.run_id}" in (screen(pilot).command or "")
        # What would have stood there comes back.
        await pilot.press("ctrl+z")
        await until(pilot, lambda: field(pilot, "devices").text == str(RunConfig().devices))
