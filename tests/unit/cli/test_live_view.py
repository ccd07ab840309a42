"""The view of a headless run: its lines, and how they are drawn anew in place while the terminal changes its size."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pyte
import pytest
from rich.text import Text

from tests.kit import histories as h
from tests.kit.harness import START_S, Gate, watching
from tests.kit.terminal import Terminal
from tests.processes.conftest import FAULTS
from tuiapp.library.find import find_run
from tuiapp.terminal.live_lines import LiveLines
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.verbs.narration import live_view


class Screen:
    """A terminal that can be resized, behind a stream."""

    def __init__(self, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("COLUMNS", "LINES"):
            monkeypatch.delenv(name, raising=False)
        self.screen = pyte.Screen(columns, 10)
        self.stream = StringIO()
        self._feed = pyte.Stream(self.screen)
        self.live = LiveLines(self.stream)
        monkeypatch.setattr(os, "get_terminal_size", self._size)

    def _size(self, *_: int) -> os.terminal_size:
        return os.terminal_size((self.screen.columns, self.screen.lines))

    def draw(self, *lines: str) -> None:
        self.live.draw([Text(line) for line in lines])

    @property
    def lines(self) -> list[str]:
        """What stands on it."""
        self._feed.feed(self.stream.getvalue().replace("\n", "\r\n"))
        self.stream.seek(0)
        self.stream.truncate()
        return [line.rstrip() for line in self.screen.display if line.strip()]


def state_of(events: list[AnyEvent]) -> RunState:
    state = RunState()
    for event in events:
        apply(state, event)
    return state


def test_lines_are_drawn_anew_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Screen(40, monkeypatch)
    terminal.draw("one", "two")
    terminal.draw("three")
    assert terminal.lines == ["three"]
    terminal.live.print_above("said")
    assert terminal.lines == ["said", "three"]
    terminal.draw("界" * 30, "b" * 80)
    shown = terminal.lines
    assert [line[-1] for line in shown] == ["d", "…", "…"]
    terminal.live.print_above("[b]no markup[/b] :smile: " + "c" * 40)
    shown = terminal.lines
    assert [line[-1] for line in shown] == ["d", "c", "c", "…", "…"]
    assert shown[1].startswith("[b]no markup[/b] :smile: ")
    terminal.live.close()
    assert terminal.lines == shown


@pytest.mark.parametrize("cells", [40, 80, 120, 200])
def test_the_lines_fit_and_tell_the_facts(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(list(h.running()))
    terminal = Screen(cells, monkeypatch)
    terminal.draw(*live_view(state, h.START + 60, cells))
    text = "\n".join(terminal.lines)
    assert len(terminal.lines) == 2 + (cells >= 100)
    assert re.search(r"\d %", text)
    if cells >= 80:
        for word in ("epoch", "step", "loss", "accuracy", "examples/s", "elapsed"):
            assert word in text, text
    assert ("rank 0" in text and "rank 1" in text) == (cells >= 100)


@contextmanager
def headless_run(directory: Path, fault: str) -> Iterator[Terminal]:
    """A run in a real terminal, with a fault in its rank."""
    settings = ("platform=cpu", "devices=1", "epochs=2")
    command = [sys.executable, "-P", "-m", "tuiapp", "run", "mlp", *(word for s in settings for word in ("--set", s))]
    home = {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory), "TUIAPP_RUNS_DIR": str(directory / "runs")}
    faults = {"TUIAPP_TEST_BACKEND": "fake", "TUIAPP_TEST_FAULT": fault, "TUIAPP_TEST_GATE": str(directory / "gate")}
    path = os.pathsep.join(filter(None, [str(FAULTS), os.environ.get("PYTHONPATH")]))
    environment = {**home, **faults, "PYTHONPATH": path}
    with Terminal(command, columns=100, lines=24, environment=environment) as terminal:
        terminal.wait(r"training +[━╸─]+ +\d+ %", START_S)
        yield terminal


@pytest.mark.nightly
def test_in_a_real_terminal(tmp_path: Path) -> None:
    # In the midst of its first epoch it waits until the bar was seen.
    with headless_run(tmp_path, "gate:0:15") as terminal, watching(find_run("latest", tmp_path / "runs")):
        terminal.resize(60, 24)
        Gate(tmp_path / "gate").open()
        terminal.wait(r"COMPLETED", START_S)
        assert terminal.wait_exit() == 0
        # The last words stay: the view as it was last, once, and the line that says what came of it.
        text = terminal.text
        assert len(re.findall(r"\d+ % +epoch", text)) == 1, text
        assert "100 %" in text
        assert b"\x07" in terminal.raw
        assert b"\x1b]9;tuiapp: mlp on digits completed" in terminal.raw


@pytest.mark.nightly
def test_what_is_said_at_ctrl_c_stays_above_the_view(tmp_path: Path) -> None:
    with headless_run(tmp_path, "gate:0:15") as terminal:
        run = find_run("latest", tmp_path / "runs")
        with watching(run):
            run.commands.rmdir()
            terminal.press("ctrl+c")
            terminal.wait(r"sent SIGTERM to its[\s\S]+ % +epoch", START_S)
            Gate(tmp_path / "gate").open()
            terminal.wait(r"STOPPED", START_S)
            assert terminal.wait_exit() == 130
            text = terminal.text
            assert len(re.findall(r"\d+ % +epoch", text)) == 1, text
            assert "sent SIGTERM to its" in text
