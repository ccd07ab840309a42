"""A long run opened in a real terminal: drawn soon, in little memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.fold import RUN_ID, write_long_run
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.nightly


def test_100_000_steps_of_8_ranks(tmp_path: Path, home: Path) -> None:
    run = write_long_run(tmp_path / RUN_ID)
    with Terminal([sys.executable, "-P", "-m", "tuiapp", "attach", str(run.path)]) as terminal:
        terminal.wait(r"100,000/100,000|COMPLETED[\s\S]*100,000", 60)
        # The highest mark, not what is left of it.
        status = Path(f"/proc/{terminal.process.pid}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) / 1024 < 150
        terminal.press("ctrl+q")
        assert terminal.wait_exit() == 0
