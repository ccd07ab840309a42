"""Every screen over runs and presets whose every text is hostile, in a real terminal: only the program speaks to it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.kit.hostile import RUN_IDS, harm_in, write_presets, write_runs
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]

_OWN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: whatever else begins one has lost its ESC
    r"|\x1b\](?:9|777|22);[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\)"  # a run's end; the pointer's shape
    r"|\x1b\[<u"
    r"|\x1b(?:\[[0-?]*)?$"  # the rest of it is still to come
)


@pytest.fixture
def environment(tmp_path: Path, home: Path) -> dict[str, str]:
    runs_dir = tmp_path / "runs"
    write_runs(runs_dir)
    write_presets()
    return {"TUIAPP_RUNS_DIR": str(runs_dir), "LANG": "C.UTF-8"}


def check(terminal: Terminal) -> None:
    terminal.wait_for_silence()
    text = terminal.raw.decode(errors="strict")
    assert "HACKED" not in text
    assert "SEFDSw" not in text
    left = _OWN.sub("", text).replace("\r", "")
    assert not harm_in(left), harm_in(left)
    assert terminal.process.isalive()


@pytest.mark.parametrize("run", RUN_IDS)
def test_a_run(environment: dict[str, str], run: str) -> None:
    with Terminal([*TUIAPP, "attach", run], environment=environment) as terminal:
        terminal.wait(r"COMPLETED|FAILED|LOST|STOPPED")
        check(terminal)
        for key in ("1", "1", "2", "2", "3", "3", "4", "4", "5", "5", "6", "6", "r", "v", "t", "?", "?"):
            terminal.press(key)
        check(terminal)
        for key in ("m", "M"):
            terminal.press(key)
            check(terminal)
            terminal.press("escape")
            check(terminal)
        terminal.press("/", "A", "enter")
        check(terminal)
        for key in ("escape", "u", "escape", "s", "escape", "c", "g"):
            # An escape that arrives together with the next key means that key with Alt.
            terminal.press(key)
            check(terminal)
        terminal.press("ctrl+q")
        terminal.wait_for_silence()
        terminal.press("enter")
        terminal.wait_exit()
        assert terminal.restored()
        text = _OWN.sub("", terminal.raw.decode()).replace("\r", "")
        assert not harm_in(text), harm_in(text)


def test_the_list_of_runs_and_what_is_reached_from_it(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait("quickstart")
        terminal.press("ctrl+g")
        terminal.wait("3 runs")
        check(terminal)
        terminal.press("x", "down", "x", "down", "x", "c")
        check(terminal)
        for key in ("escape", "escape", "a"):
            terminal.press(key)
            check(terminal)
        terminal.press("ctrl+p", "r")
        check(terminal)
        for _ in range(3):
            terminal.press("escape")
            terminal.wait_for_silence()
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
