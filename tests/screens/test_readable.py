"""Every theme's text can be read on every ground that it stands on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

import tuiapp
from tests.kit.configure_app import Start, screen, type_into
from tuiapp.app import TuiApp
from tuiapp.terminal.readable import GROUNDS, LEAST_BORDER, LEAST_CONTRAST, MUTED, ON_THEIR_OWN, TEXTS, contrast
from tuiapp.trainers.config.machine import Machine
from tuiapp.view.marks import series_color

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
