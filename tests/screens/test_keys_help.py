"""`?` and the palette: what the keys do where one is, and nothing that does not work there."""

from __future__ import annotations

from collections import defaultdict

import pytest
from textual.binding import Binding
from textual.events import Key
from textual.keys import _character_to_key as character_to_key
from textual.widgets import OptionList, Static
from textual.widgets._footer import FooterKey

from tests.kit import histories as h
from tests.kit.run_app import until
from tests.kit.stage import Stage, folded, run_screen
from tuiapp.screens.keys import WORDS_CELLS, KeysHelp, Palette
from tuiapp.screens.preferences import nodes
from tuiapp.screens.runs import RunsScreen

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
