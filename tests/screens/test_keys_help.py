"""What the keys are said to do: help, palette, footer, jump letters."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding
from textual.events import Key
from textual.geometry import Offset
from textual.keys import _character_to_key as character_to_key
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets._footer import FooterKey

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.configure_app import Start, field, screen
from tests.kit.run_app import until
from tests.kit.stage import Stage, folded, run_screen
from tuiapp import widgets
from tuiapp.screens.compare import CompareScreen
from tuiapp.screens.jump import LETTERS, JumpScreen, labelled
from tuiapp.screens.keys import WORDS_CELLS, KeysHelp, Palette
from tuiapp.screens.preferences import nodes
from tuiapp.screens.runs import RunsScreen
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import summarise
from tuiapp.widgets.preset_list import PresetList

SIZES = [(40, 12), (80, 24), (120, 40)]


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
async def test_the_keys_of_where_one_is(size: tuple[int, int]) -> None:
    screen = run_screen(h.running())
    app = Stage(screen)
    async with app.run_test(size=size) as pilot:
        await folded(pilot, screen)
        await pilot.press("5", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, KeysHelp))
        await pilot.pause()
        first = str(app.screen.query_one("#keys", Static).content)
        assert ("s Stop" in first, "Smoother" in first) == (True, False), "the first are those of the footer"
        await pilot.press("space")
        told = str(app.screen.query_one("#keys", Static).content)
        lines = told.splitlines()
        headings = ["Run", "Charts", "Ranks and log", "One panel large", "Elsewhere", "Everywhere"]
        assert [line for line in lines if line in headings] == headings
        # The screen's own key and the program's for the same are one entry.
        assert any("q ^q Quit tuiapp" in line for line in lines)
        assert "s Stop" in told
        assert "Smoother" in told
        # It cannot be resumed while it goes on; scrolling is not worth a line.
        for word in ("Resume", "Scroll", "Page"):
            assert word not in told
        assert max(map(len, lines)) <= 0.95 * size[0]
        for key in ("q", "question_mark"):
            await pilot.press(key)
            await until(pilot, lambda: app.screen is screen)
            await pilot.press("question_mark")
            await until(pilot, lambda: isinstance(app.screen, KeysHelp))


async def test_the_palette_has_the_footers_actions_first_and_enter_takes_what_was_searched() -> None:
    app = Stage(preset="quickstart")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(app.screen.query(FooterKey)))
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.pause()
        lines = [str(option.prompt) for option in app.screen.query_one(OptionList).options]
        assert lines[0].startswith("Launch the run ")
        assert lines[0].endswith(" ^r")
        assert len({len(line) for line in lines}) == 1
        # What is beneath is no place for keys typed in a hurry: they arrive together.
        for key in (*"list all", "enter"):
            app.post_message(Key(key if len(key) > 1 else character_to_key(key), key if len(key) == 1 else None))
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))


def test_the_words_of_each_key_fit_their_column() -> None:
    found = [one for node in nodes() for one in Binding.make_bindings(node.__dict__.get("BINDINGS", ()))]
    words = {one.tooltip or one.description for one in found if not one.system}
    assert len(words) > 50
    assert [one for one in words if len(one) >= WORDS_CELLS] == []


ALIKE = {"End": "Stop", "Name,": "Name"}


"""Words of one meaning."""


def test_a_letter_means_one_thing_on_all_screens() -> None:
    found = [one for node in nodes() for one in Binding.make_bindings(node.__dict__.get("BINDINGS", ()))]
    meanings = defaultdict[str, set[str]](set)
    for one in found:
        word = one.description.split()[0]
        # What opens a screen closes it.
        if one.key.isalpha() and len(one.key) == 1 and word not in ("Back", "Close"):
            meanings[one.key].add(ALIKE.get(word, word))
    assert {"x": {"Mark"}, "t": {"Axis"}, "n": {"Find"}}.items() <= meanings.items()
    assert {key: words for key, words in meanings.items() if len(words) > 1} == {}


NAMES = [module.name for module in pkgutil.iter_modules(widgets.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_a_widget_with_keys_has_a_name(name: str) -> None:
    module = importlib.import_module(f"tuiapp.widgets.{name}")
    for kind in vars(module).values():
        ours = isinstance(kind, type) and issubclass(kind, Widget) and kind.__module__ == module.__name__
        if ours and kind.__dict__.get("BINDINGS"):
            assert getattr(kind, "BINDING_GROUP_TITLE", None), kind


SCREENS: dict[str, Callable[[], Screen[Any] | None]] = {
    "configure": lambda: None,
    "running": lambda: run_screen(h.running()),
    "completed": lambda: run_screen(h.completed()),
    "stopped": lambda: run_screen(interrupted.stopped()),
    "runs": lambda: RunsScreen(Path("/home/ada/runs")),
    "compare": lambda: CompareScreen([summarise(RunDir(Path(f"/home/ada/runs/{name}"))) for name in "ab"]),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCREENS)
async def test_its_keys_fit_80_columns(name: str) -> None:
    app = Stage(SCREENS[name]())
    async with app.run_test(size=(80, 24)) as pilot:

        def shown() -> list[FooterKey]:
            return [key for key in app.screen.query(FooterKey) if key.display]

        await until(pilot, lambda: any(key.key_display == "^p" for key in shown()))
        await pilot.pause(0.3)
        assert max(key.region.right for key in shown()) <= 80
        few = len(shown())
        await pilot.resize_terminal(160, 24)
        await until(pilot, lambda: len(shown()) == len(app.screen.query(FooterKey)))
        assert max(key.region.right for key in shown()) <= 160
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: len(shown()) == few)


async def test_while_a_text_is_typed_no_key_is_offered_that_types() -> None:
    app = Stage(run_screen(h.running()))
    async with app.run_test(size=(120, 40)) as pilot:

        def offered() -> set[str]:
            return {key.key_display for key in app.screen.query(FooterKey) if key.display}

        await until(pilot, lambda: "/" in offered())
        await pilot.press("slash")
        await until(pilot, lambda: "s" not in offered())
        assert offered() == {"^y", "^p"}
        await pilot.press("escape")
        await until(pilot, lambda: "/" in offered())


@pytest.mark.parametrize("count", [0, 1, 26, 27, 51, 52, 300, 676, 900])
def test_no_label_begins_another(count: int) -> None:
    labels, found = labelled([(Offset(0, n), print) for n in range(count)])
    assert len(labels) == len(set(labels)) == len(found) == min(count, 26 * 26)
    assert not any(other.startswith(label) for label in labels for other in labels if other != label)
    assert count > 60 or labels[:20] == [*LETTERS[: min(20, count)]], "what is at hand comes first"


def label_at(shown: JumpScreen, place: Offset) -> str:
    return next(str(one.content) for one in shown.query(Static) if one.region.offset == place)


async def test_from_the_presets_to_a_field_and_back(start: Start) -> None:
    async with start(preset="quickstart") as pilot:
        app = pilot.app
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen))
        assert isinstance(app.screen, JumpScreen)
        seed = field(pilot, "seed")
        control = next(one for one in seed.query("*") if one.focusable)
        await pilot.press(*label_at(app.screen, control.region.offset))
        await until(pilot, lambda: seed.has_focus_within)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen))
        presets = screen(pilot).query_one(PresetList)
        assert isinstance(app.screen, JumpScreen)
        await pilot.press(*label_at(app.screen, presets.content_region.offset + Offset(0, 1)))
        await until(pilot, lambda: presets.has_focus and presets.cursor is not None)
        assert presets.cursor
        assert presets.cursor.name == "my-script"
        # What is no label takes them away, and does nothing else.
        await pilot.press("ctrl+t")
        await until(pilot, lambda: isinstance(app.screen, JumpScreen))
        await pilot.press("1")
        await until(pilot, lambda: app.screen is screen(pilot))
