"""Much that comes at once: keys held down, and sequences that no terminal should send."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kit.terminal import READY, Terminal

pytestmark = pytest.mark.nightly

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    places = {name: str(tmp_path / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TUIAPP_RUNS_DIR")}
    return {**places, "HOME": str(tmp_path), "LANG": "C.UTF-8"}


def test_the_focus_moved_200_times_is_painted_a_few_times(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait(READY)
        terminal.wait_for_silence()
        before = len(terminal.raw)
        # What follows the tabs is painted after them; a cursor that blinks leaves no silence to wait for.
        terminal.press("\t" * 200, "ctrl+s")
        terminal.wait("Save preset")
        painted = len(terminal.raw) - before
        print(f"\n200 tabs: {painted:,} bytes written")
        # The whole screen is 40 kB.
        assert painted < 400_000
        terminal.press("escape")
        terminal.wait_gone("Save preset")
        terminal.press("\t" * 200, "ctrl+q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()


def test_a_focus_that_moves_paints_only_what_changes(environment: dict[str, str]) -> None:
    with Terminal(TUIAPP, environment=environment) as terminal:
        terminal.wait(READY)
        terminal.press("\t")
        terminal.wait_for_silence(1.0, 60)
        before = len(terminal.raw)
        for _ in range(5):
            terminal.press("\t")
            terminal.wait_for_silence(0.5, 60)
        painted = len(terminal.raw) - before
        print(f"\n5 tabs within the form: {painted:,} bytes written")
        assert painted < 20_000
