"""What the dashboard costs, in a pty of 120 x 40: `python -m tests.bench.dashboard [live] [draw] [RANKS]`.

Takes about a minute.

- Watching 8 ranks (or RANKS) at 200 steps/s each, written by a process of its own: the share of a core, and the bytes
  written to the terminal per second.
- Meanwhile 56 keys, one after the other: from the key to the moment when the terminal has got what it asks for.
- The same in the grid of all metrics, six charts on a page.
- Drawing one frame of the chart, of eight ranks.

Beside each figure of wall time stands the machine's load: on a busy machine it says little.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.bench.drawing import time_drawing
from tests.bench.long_run import RANKS
from tests.kit.terminal import Terminal
from tuiapp.trainers.contract.rundir import RunDir

WATCH_S = 20.0
PAST_STEPS = 4000

KEYS = [
    ("y", b"logarithmic"),
    ("y", None),
    ("t", None),
    ("t", None),
    ("v", None),
    ("v", None),
    ("]", None),
    ("[", None),
]
"""A key, and what must come; None: whatever comes first."""

GRID_KEYS = [
    ("y", None),
    ("y", None),
    ("\x1b[C", "▸".encode()),
    ("\x1b[D", "▸".encode()),
    ("\r", b" of "),
    ("\r", None),
]
"""The same in the grid of all metrics."""


class Home:
    """Directories for what the program keeps, so that it touches nobody's."""

    def __init__(self, path: Path) -> None:
        self.runs = path / "runs"
        self.runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.environment = {
            **{f"XDG_{name}_HOME": str(path) for name in ("DATA", "CONFIG", "CACHE", "STATE")},
            "TUIAPP_RUNS_DIR": str(self.runs),
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def run(self, name: str) -> RunDir:
        run = RunDir(self.runs / f"20261120T101500-torch-ddp-net-{name}")
        run.path.mkdir(mode=0o700, exist_ok=True)
        run.config.write_text("schema = 1\n")
        return run


def watch(home: Home, run: RunDir) -> Terminal:
    return Terminal([sys.executable, "-P", "-m", "tuiapp", "attach", str(run.path)], environment=home.environment)


def share_of_core(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """Per cent of a core, and kB/s to the terminal."""
    process = psutil.Process(terminal.process.pid)
    before, written, began = process.cpu_times(), len(terminal.raw), time.monotonic()
    while time.monotonic() - began < seconds:
        terminal._pump(0.05)
    passed, after = time.monotonic() - began, process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return 100 * used / passed, (len(terminal.raw) - written) / passed / 1e3


def key_latencies(terminal: Terminal, keys: Sequence[tuple[str, bytes | None]]) -> list[float]:
    """Milliseconds from each key to what it asks for."""
    found = []
    for number in range(56):
        key, wanted = keys[number % len(keys)]
        until = time.monotonic() + 0.05 + 0.013 * (number % 7)
        while time.monotonic() < until:
            terminal._pump(0.005)
        began, seen = time.monotonic(), len(terminal.raw)
        terminal.press(key)
        while time.monotonic() - began < 5:
            terminal._pump(0.002)
            fresh = terminal.raw[seen:]
            if (wanted in fresh) if wanted else len(fresh) > 0:
                break
        else:
            print(f"{key} did not bring {wanted!r}")
        found.append((time.monotonic() - began) * 1e3)
    return found


def measure_live(home: Home, ranks: int) -> None:
    run = home.run("0002")
    # Hundreds of ranks are not to take longer to write than to watch.
    past = PAST_STEPS if ranks <= RANKS else PAST_STEPS // 10
    command = [sys.executable, "-m", "tests.bench.long_run", str(run.path), str(past), "150", str(ranks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout
            writer.stdout.readline()
            with watch(home, run) as terminal:
                # Until its journal is read, there is no speed.
                terminal.wait("examples/s")
                share_of_core(terminal, 3)
                shares, rates = zip(*(share_of_core(terminal, WATCH_S / 4) for _ in range(4)), strict=True)
                latencies = key_latencies(terminal, KEYS)
                terminal.press("G")
                terminal.wait("▸")
                share_of_core(terminal, 3)
                grid_share, grid_rate = share_of_core(terminal, WATCH_S)
                grid_latencies = key_latencies(terminal, GRID_KEYS)
        finally:
            writer.kill()
    print(
        f"share of a core       {statistics.median(shares):.1f} %   {min(shares):.1f} to {max(shares):.1f} %   (10 %)"
    )
    print(f"written to terminal   {statistics.median(rates):.1f} kB/s")
    print(f"the same, in the grid {grid_share:.1f} %   {grid_rate:.1f} kB/s")
    print(
        f"key to screen         median {statistics.median(latencies):.0f} ms, worst {max(latencies):.0f} ms   (50 ms)"
    )
    print(
        f"the same, in the grid median {statistics.median(grid_latencies):.0f} ms, worst {max(grid_latencies):.0f} ms"
    )


def main() -> None:
    ranks = next((int(word) for word in sys.argv[1:] if word.isdigit()), RANKS)
    wanted = {word for word in sys.argv[1:] if not word.isdigit()} or {"live", "draw"}
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        if "live" in wanted:
            measure_live(home, ranks)
    if "draw" in wanted:
        time_drawing()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
