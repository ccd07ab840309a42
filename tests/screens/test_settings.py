"""What the settings change in the dashboard, and that nothing in them keeps it from opening."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.pilot import Pilot

from tests.kit.configure_app import Start, until
from tests.screens.test_app import make_run
from tuiapp.app import TuiApp
from tuiapp.screens.keys import Palette
from tuiapp.screens.pickers import ThemeList
from tuiapp.screens.preferences import bindings, key_problem, nodes
from tuiapp.terminal.ascii_filter import to_ascii, wants_ascii
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import Problem
from tuiapp.trainers.config.settings import Settings, read_settings, settings_path


async def choose_theme(pilot: Pilot[None], *keys: str) -> None:
    """Through the palette; a theme is shown while the cursor is on it."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, Palette))
    await pilot.press(*"the", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, ThemeList))
    before = pilot.app.theme
    for key in keys[:-1]:
        await pilot.press(key)
        await pilot.pause()
        assert key == "up" or pilot.app.theme != before
    await pilot.press(keys[-1])
    await until(pilot, lambda: not isinstance(pilot.app.screen, ThemeList))


@pytest.mark.nightly
async def test_the_theme_is_taken_and_one_chosen_is_remembered(start: Start) -> None:
    async with start(settings=Settings(theme="gruvbox")) as pilot:
        assert pilot.app.theme == "gruvbox"
        assert not settings_path().exists()
        await choose_theme(pilot, "down", "down", "up", "escape")
        assert (pilot.app.theme, settings_path().exists()) == ("gruvbox", False)
        await choose_theme(pilot, "home", "enter")
        await until(pilot, lambda: settings_path().exists())
        assert read_settings()[0].theme == pilot.app.theme == sorted(pilot.app.available_themes)[0]


async def test_what_is_wrong_with_the_file_is_said(start: Start) -> None:
    problems = [Problem("bell", "3 is not allowed; it must be one of false, true.")]
    async with start(settings=Settings(theme="gruvbocks"), problems=problems) as pilot:
        await until(pilot, lambda: bool(pilot.app._notifications))
        said = "\n".join(note.message for note in pilot.app._notifications)
        assert "bell: 3 is not allowed" in said
        assert "theme: 'gruvbocks' is not allowed" in said
        assert "Did you mean 'gruvbox'?" in said
        assert str(settings_path()) in said


async def test_keys_are_remapped_and_unknown_ones_named(start: Start) -> None:
    keys = {"configure.copy": "f9", "configure.lunch": "f8"}
    problems = [Problem("bell", "3 is not allowed; it must be one of false, true.")]
    async with start(settings=Settings(keys=keys), problems=problems) as pilot:
        await pilot.press("ctrl+y")
        assert pilot.app.clipboard == ""
        await pilot.press("f9")
        assert pilot.app.clipboard == "tuiapp run"
        await until(
            pilot, lambda: any("Did you mean 'configure.launch'" in note.message for note in pilot.app._notifications)
        )
        # Keys are looked at later than the rest, of which nothing may be lost.
        said = "\n".join(note.message for note in pilot.app._notifications)
        assert (said.count("bell: 3"), said.count("configure.lunch")) == (1, 1)


def test_keys_of_all_bindings_are_keys() -> None:
    assert [bound for bound in bindings() for key in bound.keys.split(",") if key_problem(key)] == []


@pytest.mark.parametrize(
    "key", ["a", "A", "?", "+", "é", "f12", "space", "question_mark", "alt+ctrl+x", "ctrl+shift+left", "shift+tab"]
)
def test_keys_that_there_are(key: str) -> None:
    assert key_problem(key) == ""


async def test_without_unicode_everything_is_ascii(start: Start) -> None:
    async with start(settings=Settings(unicode="off"), preset="quickstart") as pilot:
        await pilot.pause()
        lines = ["".join(segment.text for segment in strip) for strip in pilot.app.screen._compositor.render_strips()]
        assert [line for line in lines if not line.isascii()] == []
        assert {len(line) for line in lines} == {120}
        assert any("+-" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("╭─ 1 loss ─╮", "+- 1 loss -+"),
        ("██▌", "###"),
        ("é", "e"),
        ("界", "??"),
        ("⣿⠁ ", "#. "),
        ("a▾", "av"),
        ("━━╸──", "===--"),
    ],
)
def test_look_alikes_are_as_wide(text: str, shown: str) -> None:
    assert to_ascii(text) == shown


@pytest.mark.parametrize(
    ("setting", "environment", "ascii_only"),
    [
        ("on", {"TERM": "linux"}, False),
        ("off", {"LANG": "en_US.UTF-8"}, True),
        ("auto", {"LANG": "en_US.UTF-8", "TERM": "xterm"}, False),
        ("auto", {"LANG": "en_US.UTF-8", "TERM": "linux"}, True),
        ("auto", {"LANG": "C"}, True),
        ("auto", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ("auto", {"LC_CTYPE": "C.UTF-8"}, False),
        ("auto", {"LANG": "C.UTF-8"}, False),
        ("auto", {"LC_ALL": "de_DE.ISO-8859-1", "LANG": "en_US.UTF-8"}, True),
        ("auto", {"LANG": "de_DE"}, False),
        ("auto", {}, False),
    ],
)
def test_where_ascii_alone_is_drawn(setting: str, environment: dict[str, str], ascii_only: bool) -> None:
    assert wants_ascii(setting, environment) is ascii_only


@pytest.mark.nightly
async def test_the_bell_rings_once_when_a_run_that_went_on_has_ended(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[int] = []
    monkeypatch.setattr(TuiApp, "bell", lambda self: rung.append(1))
    monkeypatch.setattr("tuiapp.feeds.end_watch.LOOK_EVERY_S", 0.02)
    over, live = make_run(tmp_path, 1), make_run(tmp_path, 2)
    lock = live.take_lock()
    app = TuiApp(runs_dir=tmp_path, run=live, machine=machine)
    async with app.run_test() as pilot:
        app.show_run(over)
        await pilot.pause(0.1)
        assert rung == []
        os.close(lock)
        await until(pilot, lambda: bool(rung))
        await pilot.pause(0.1)
        assert rung == [1]


def test_every_key_has_a_name_to_be_remapped_by() -> None:
    named = list(bindings())
    assert len(named) > 40
    for node in nodes():
        own = list(Binding.make_bindings(node.__dict__.get("BINDINGS", ())))
        assert [one.action for one in own if not one.id] == [], node
        # One that does two things could not be given a key of its own.
        actions: dict[str, set[str]] = {}
        for one in own:
            actions.setdefault(one.id or "", set()).add(one.action)
        assert all(len(done) == 1 for done in actions.values()), (node, actions)
