"""What the settings change in the dashboard, and that each theme can be read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.color import Color
from textual.pilot import Pilot
from textual.theme import BUILTIN_THEMES

import tuiapp
from tests.kit.configure_app import Start, screen, type_into, until
from tests.screens.test_app import make_run
from tuiapp.app import TuiApp
from tuiapp.screens.keys import Palette
from tuiapp.screens.pickers import ThemeList
from tuiapp.screens.preferences import bindings, key_problem, nodes
from tuiapp.terminal.ascii_filter import to_ascii, wants_ascii
from tuiapp.terminal.readable import GROUNDS, LEAST_BORDER, LEAST_CONTRAST, MUTED, ON_THEIR_OWN, TEXTS, contrast
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import Problem
from tuiapp.trainers.config.settings import Settings, read_settings, settings_path
from tuiapp.view.marks import series_color


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


THEMES = sorted(name for name in BUILTIN_THEMES if not name.startswith("ansi"))


@pytest.mark.parametrize("theme", THEMES)
def test_text_has_contrast(theme: str, tmp_path: Path, machine: Machine) -> None:
    app = TuiApp(runs_dir=tmp_path, machine=machine)
    app.theme = theme
    variables = app.get_css_variables()
    worst = {
        (text, ground): contrast(Color.parse(variables[text]), Color.parse(variables[ground]))
        for text in (*TEXTS, *MUTED)
        for ground in GROUNDS
    }
    for text, own in ON_THEIR_OWN.items():
        ground = Color.parse(variables["background"]) + Color.parse(variables[own])
        worst[text, own] = contrast(Color.parse(variables[text]), ground)
    print(f"{theme}: at least {min(worst.values()):.2f}")
    assert {pair: value for pair, value in worst.items() if value < LEAST_CONTRAST} == {}
    border = Color.parse(variables["border-blurred"])
    assert min(contrast(border, Color.parse(variables[ground])) for ground in GROUNDS) >= LEAST_BORDER


def test_all_of_textuals_themes_but_those_of_16_colours_are_there(tmp_path: Path, machine: Machine) -> None:
    assert sorted(TuiApp(runs_dir=tmp_path, machine=machine).available_themes) == THEMES


def test_text_is_written_in_these_colours_alone() -> None:
    """A share of a colour has less contrast than the colour: `$text-muted` is there for what is read second."""
    package = Path(tuiapp.__file__).parent
    found = []
    for path in [*package.rglob("*.py"), *package.rglob("*.tcss")]:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            shares = re.findall(r"(?<!-)\bcolor: \$foreground \d+%|\"\$foreground \d+%\"", line)
            # The faintest are no text: gaps, grids, what is not there.
            found += [(path.name, number, share) for share in shares if "30%" not in share]
    assert found == []


@pytest.mark.parametrize("dark", [False, True])
def test_series_can_be_told_from_the_ground(dark: bool) -> None:
    ground = Color.parse("#121212" if dark else "#e0e0e0")
    # Lines and blocks are no text: WCAG asks for 3, and a letter stands beside each.
    ratios = [contrast(Color.parse(series_color(index, dark=dark)), ground) for index in range(8)]
    assert min(ratios) >= 3, ratios


@pytest.mark.nightly
async def test_launch_is_grey_over_errors_and_says_why(start: Start) -> None:
    async with start() as pilot:
        button = screen(pilot).query_one("#launch")
        assert not button.has_class("-blocked")
        await type_into(pilot, "epochs", "x")
        assert button.has_class("-blocked")
        assert not button.disabled
        await pilot.click("#launch")
        await pilot.pause()
        assert any("fix the marked fields" in note.message for note in pilot.app._notifications)
        await type_into(pilot, "epochs", "3")
        assert not button.has_class("-blocked")
