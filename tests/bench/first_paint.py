"""From the start of `tuiapp` to a painted form, in a pty: `python -m tests.bench.first_paint [ROUNDS]`.

The screen counts as painted when presets, form and command stand on it. Beside it, in turns: how long keys typed at
once take to show in a field, and the least that any Textual program takes, an app with one label. Processor time, which
other work on the machine disturbs less, is that of the program with all its threads up to the same moment.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

import psutil

from tests.kit.terminal import Terminal

LEAST = """
from textual.app import App
from textual.widgets import Label

class Least(App):
    def compose(self):
        yield Label("painted")

Least().run()
"""
PAINTED = r"(?s)quickstart.*Backend +torch-ddp.*\$ tuiapp run"
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
TO_DEVICES = ["tab"] * 5
"""From the presets past backend, model, data and platform to the number of devices."""


def _time(command: list[str], keys: list[str], pattern: str, home: str) -> tuple[float, float]:
    """Seconds, and seconds of processor time, from the start until a pattern stands on the screen."""
    with Terminal(command, environment={"HOME": home, "XDG_CONFIG_HOME": home, "TUIAPP_RUNS_DIR": home}) as terminal:
        terminal.press(*keys)
        wall = terminal.wait(pattern)
        spent = psutil.Process(terminal.process.pid).cpu_times()
        return wall, spent.user + spent.system


def main() -> None:
    """Measure in turns and print the medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    programs = {
        "tuiapp": (TUIAPP, [], PAINTED),
        "tuiapp, typed into": (TUIAPP, [*TO_DEVICES, "4"], r"Devices +4 "),
        "least Textual app": ([sys.executable, "-c", LEAST], [], "painted"),
    }
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds):
            for name, (command, keys, pattern) in programs.items():
                rows[name].append(_time(command, keys, pattern, home))
    for name, figures in rows.items():
        for what, seconds in zip(("wall", "processor"), zip(*figures, strict=True), strict=True):
            spread = f"{min(seconds):.3f} to {max(seconds):.3f} s"
            print(f"{name:20} {what:10} median {statistics.median(seconds):.3f} s   {spread}")


if __name__ == "__main__":
    main()
