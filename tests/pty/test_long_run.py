"""A long run opened in a real terminal: drawn soon, in little memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.bench.fold import RUN_ID, write_long_run
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.nightly


def test_100_000_steps_of_8_ranks(tmp_path: Path, home: Path) -> None:
    run = write_long_run(tmp_path / RUN_ID)
    for _ in range(3):
        with Terminal([sys.executable, "-P", "-m", "tuiapp", "attach", str(run.path)]) as terminal:
            shown = terminal.wait(r"100,000/100,000|COMPLETED[\s\S]*100,000", 60)
            process = psutil.Process(terminal.process.pid)
            used = process.cpu_times()
            processor = used.user + used.system
            # The highest mark, not what is left of it.
            status = Path(f"/proc/{process.pid}/status").read_text()
            most = int(status.split("VmHWM:")[1].split()[0]) / 1024
            terminal.wait_for_silence()
            began = time.monotonic()
            terminal.press("ctrl+q")
            assert terminal.wait_exit() == 0
            left = time.monotonic() - began
        figures = f"{processor:.2f} s of processor time, {most:.0f} MiB; left in {left:.2f} s"
        print(f"\nfully drawn {shown:.2f} s after the start, {figures}")
        assert most < 150
        # The second of a quiet machine, as far as others leave it here.
        assert processor < 4
