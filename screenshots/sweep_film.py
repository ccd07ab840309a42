"""Makes README's moving picture: `python -m screenshots.sweep_film`.

A sweep of three learning rates, from the form over the list with its live curves to the best run. `--into FILE` writes
it elsewhere. Needs what `screenshots.make` needs.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from pathlib import Path

from screenshots import picture
from screenshots.make import HERE, PATIENCE_S, TUIAPP
from tests.kit.screen_text import Cell
from tests.kit.terminal import READY, Terminal
from tuiapp.trainers.config.settings import settings_path

EVERY_S = 0.25
"""Between two looks at the screen."""

READ_MS, TYPED_MS, LIVE_MS = 1500, 90, 200
"""How long a screen stays that is read, that is typed on, and that changes by itself."""

MOST_LIVE = 60
"""Screens that change by themselves, at most: of more, some are left out."""


class Film:
    """What a terminal shows, screen by screen."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._screens: list[tuple[list[list[Cell]], int]] = []

    def show(self, stays_ms: int = READ_MS) -> None:
        """Takes the screen as it is once nothing more is written."""
        self._terminal.wait_for_silence(0.4, 3)
        self._screens.append((picture.cells_of(self._terminal.screen), stays_ms))

    def type(self, *keys: str) -> None:
        """Presses keys one by one."""
        for key in keys:
            self._terminal.press(key)
            self._terminal.wait_for_silence(0.15, 1)
            self._screens.append((picture.cells_of(self._terminal.screen), TYPED_MS))

    def follow(self, pattern: str) -> None:
        """Takes what changes until the screen matches a pattern."""
        seen = []
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self._terminal.text):
            assert time.monotonic() < deadline, f"{pattern!r} did not come:\n{self._terminal.text}"
            self._terminal.wait_for_silence(EVERY_S, EVERY_S)
            seen.append(picture.cells_of(self._terminal.screen))
        step = -(-len(seen) // MOST_LIVE)
        self._screens += [(cells, LIVE_MS) for cells in seen[::step]] if seen else []

    def save(self, path: Path) -> None:
        """Writes it as a GIF."""
        picture.save_moving(self._screens, path)
        print(path, f"{path.stat().st_size >> 10} KiB, {len(self._screens)} screens", flush=True)


def main() -> None:
    """Makes it."""
    parser = argparse.ArgumentParser(description="Makes README's moving picture.")
    parser.add_argument("--into", metavar="FILE", type=Path, default=HERE / "sweep.gif", help="where to")
    into = parser.parse_args().into.resolve()
    with tempfile.TemporaryDirectory() as home:
        places = {"XDG_CONFIG_HOME": "config", "TUIAPP_RUNS_DIR": "runs"}
        os.environ.update({"HOME": home, "LANG": "C.UTF-8", **{name: f"{home}/{at}" for name, at in places.items()}})
        settings_path().parent.mkdir(parents=True)
        settings_path().write_text("queue_cpu_slots = 3\n")
        with Terminal(TUIAPP, columns=120, lines=40) as terminal:
            _tell(terminal, Film(terminal), into)


def _tell(terminal: Terminal, film: Film, into: Path) -> None:
    terminal.wait(READY)
    film.show()
    _fill(terminal, film, "Devices", "1")
    _fill(terminal, film, "Learning rate", "0.003, 0.0003, 0.00003")
    _fill(terminal, film, "Epochs", "12")
    film.show()
    terminal.press("ctrl+r")
    terminal.wait(r"(learning_rate=[\d.e-]+ +[\d.e-]+ [\s\S]*){3}", PATIENCE_S)
    # All three in the charts; their order by accuracy changes meanwhile.
    terminal.press("0")
    terminal.wait("sorted by name")
    for place, keys in enumerate((("home", "x"), ("down", "x"), ("down", "x")), start=1):
        terminal.press(*keys)
        terminal.wait(f"{place} marked")
    terminal.press("6")
    terminal.wait("sorted by best acc")
    film.follow(r"3 runs.*3 completed|(completed[\s\S]*){3}")
    film.show()
    # The best is on top.
    terminal.press("home", "enter")
    terminal.wait("COMPLETED", PATIENCE_S)
    film.show(2 * READ_MS)
    film.save(into)


def _fill(terminal: Terminal, film: Film, label: str, value: str) -> None:
    # A click while the form is laid out anew would miss.
    terminal.wait_for_silence(0.5, 5)
    terminal.click(rf"(?<={label:16})\S")
    terminal.wait_for_cursor(label)
    terminal.press("end", "ctrl+u")
    film.type(*value)


if __name__ == "__main__":
    main()
