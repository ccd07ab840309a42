"""From the start of `tuiapp` to a painted Configure screen, in a pty: `python -m tests.benchmarks.first_paint`.

The screen counts as painted when presets, form and command stand on it. Beside it, alternating, the least that any
Textual program takes: an app with one label.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

from tests.pty.terminal import Terminal

ROUNDS = 5
LEAST = """
from textual.app import App
from textual.widgets import Label

class Least(App):
    def compose(self):
        yield Label("painted")

Least().run()
"""


def _time(command: list[str], pattern: str, home: str) -> float:
    with Terminal(command, environment={"HOME": home, "XDG_CONFIG_HOME": home, "TUIAPP_RUNS_DIR": home}) as terminal:
        return terminal.wait(pattern)


def main() -> None:
    rows: dict[str, list[float]] = {"tuiapp": [], "least Textual app": []}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(ROUNDS):
            rows["tuiapp"].append(_time([sys.executable, "-P", "-m", "tuiapp"], r"(?s)quickstart.*\$ tuiapp run", home))
            rows["least Textual app"].append(_time([sys.executable, "-c", LEAST], "painted", home))
    for name, seconds in rows.items():
        print(f"{name:20} median {statistics.median(seconds):.3f} s   {min(seconds):.3f} to {max(seconds):.3f} s")


if __name__ == "__main__":
    main()
