"""Makes the pictures in this directory from the real program with real training: `python -m screenshots.make`.

Needs the `dev` extra and the font DejaVu Sans Mono (Debian: fonts-dejavu-core). Takes about a minute; presets and runs
are made in a temporary directory.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from screenshots import picture
from tests.processes.harness import watching
from tests.pty.terminal import Terminal
from trainers.contract.runs import find_run

HERE = Path(__file__).parent
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
CPU = ("--set", "platform=cpu", "--set", "devices=2")


def main() -> None:
    """Make them all."""
    with tempfile.TemporaryDirectory() as home:
        places = {
            "HOME": home,
            "XDG_CONFIG_HOME": f"{home}/config",
            "TUIAPP_RUNS_DIR": f"{home}/runs",
            "LANG": "C.UTF-8",
        }
        os.environ.update(places)
        _configure_and_run(Path(home) / "runs")
        _small(Path(home) / "runs")
        _failed(Path(home) / "runs")


def _configure_and_run(runs_dir: Path) -> None:
    with Terminal([*TUIAPP, "--runs-dir", str(runs_dir)], columns=120, lines=40) as terminal:
        terminal.wait("CPU ranks|GPU")
        _take(terminal, "configure")
        terminal.press("ctrl+s")
        terminal.wait("(?i)save")
        _take(terminal, "save-preset")
        terminal.press("escape")
        terminal.wait_for_silence()
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", 60)
        with watching(find_run("latest", runs_dir)) as run:
            terminal.wait(r"epoch +1[0-9]/", 60)
            _take(terminal, "run")
            terminal.press("q")
            terminal.wait("Leave running")
            _take(terminal, "leave")
            terminal.press("escape")
            run.end()
            terminal.wait("COMPLETED")
            _take(terminal, "completed")


def _small(runs_dir: Path) -> None:
    with Terminal(TUIAPP, columns=80, lines=24) as terminal:
        terminal.wait("CPU ranks|GPU")
        _take(terminal, "configure-80x24")
    with Terminal([*TUIAPP, "attach", "--runs-dir", str(runs_dir)], columns=80, lines=24) as terminal:
        terminal.wait("COMPLETED")
        _take(terminal, "completed-80x24")


def _failed(runs_dir: Path) -> None:
    with Terminal([*TUIAPP, "run", "quickstart", *CPU], columns=120, lines=40) as headless:
        headless.wait("epoch 1/", 60)
        with (
            watching(find_run("latest", runs_dir)) as run,
            Terminal([*TUIAPP, "attach"], columns=120, lines=40) as terminal,
        ):
            terminal.wait(r"epoch +[3-9]/", 60)
            os.kill(run.pid(1), signal.SIGKILL)
            terminal.wait("FAILED")
            _take(terminal, "failed")


def _take(terminal: Terminal, name: str) -> None:
    terminal.wait_for_silence(0.6, 2)
    path = HERE / f"{name}.png"
    picture.save(terminal.screen, path)
    print(path)


if __name__ == "__main__":
    main()
