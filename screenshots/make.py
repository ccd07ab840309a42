"""Makes the pictures in this directory from the real program with real training: `python -m screenshots.make`.

Needs the `dev` extra and the font DejaVu Sans Mono (Debian: fonts-dejavu-core). Takes some minutes; presets and runs
are made in a temporary directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from screenshots import picture
from tests.processes.harness import Watched, watching
from tests.pty.terminal import Terminal
from trainers.config.environment import HANG_VARIABLE
from trainers.contract.events import Alert
from tuiapp.library.find import find_run

HERE = Path(__file__).parent
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
CPU = ("--set", "platform=cpu", "--set", "devices=2")

PATIENCE_S = 400.0
"""What a busy machine may take for anything."""


def main() -> None:
    """Make them all."""
    with tempfile.TemporaryDirectory() as home:
        places = {
            "HOME": home,
            "XDG_CONFIG_HOME": f"{home}/config",
            "TUIAPP_RUNS_DIR": f"{home}/runs",
            "LANG": "C.UTF-8",
            # A run whose rank was stopped is told of after seconds, not half a minute.
            HANG_VARIABLE: "5",
        }
        os.environ.update(places)
        runs_dir = Path(home) / "runs"
        _configure_and_run(runs_dir)
        _small(runs_dir)
        _failed(runs_dir)
        _hang(runs_dir)
        _runs_and_compare()
        _script()


def _configure_and_run(runs_dir: Path) -> None:
    with Terminal([*TUIAPP, "--runs-dir", str(runs_dir)], columns=120, lines=40) as terminal:
        terminal.wait("CPU ranks|GPU")
        _take(terminal, "configure")
        terminal.press("ctrl+s")
        terminal.wait("Save preset")
        _take(terminal, "save-preset")
        terminal.press("escape")
        terminal.wait_for_silence()
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", PATIENCE_S)
        with watching(find_run("latest", runs_dir)) as run:
            terminal.wait(r"epoch +[6-9]/", PATIENCE_S)
            _take(terminal, "run")
            terminal.press("?")
            terminal.wait("Everywhere")
            _take(terminal, "keys")
            terminal.press("?")
            terminal.wait_for_silence()
            terminal.press("q")
            terminal.wait("Leave running")
            _take(terminal, "leave")
            terminal.press("escape")
            run.end(PATIENCE_S)
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
    """A rank is killed."""
    with _beside_headless(runs_dir) as (run, terminal):
        os.kill(run.pid(1), signal.SIGKILL)
        terminal.wait("FAILED")
        _take(terminal, "failed")


def _hang(runs_dir: Path) -> None:
    """A rank is stopped, as by a debugger."""
    with _beside_headless(runs_dir) as (run, terminal):
        os.kill(run.pid(1), signal.SIGSTOP)
        run.wait(Alert, lambda alert: alert.kind in ("hang", "stopped"), PATIENCE_S)
        terminal.wait("no progress|stopped")
        _take(terminal, "hang")


def _script() -> None:
    """A script of the user's own, with one line that reports."""
    script = ["run", str(HERE.parent / "trainers" / "examples" / "ddp_article.py"), *CPU, "--", "--epochs", "40"]
    with Terminal([*TUIAPP, *script], columns=120, lines=40) as headless:
        headless.wait("step [3-9][0-9][0-9]", PATIENCE_S)
        with Terminal([*TUIAPP, "attach"], columns=120, lines=40) as terminal:
            terminal.wait("COMPLETED", PATIENCE_S)
            _take(terminal, "script")


@contextmanager
def _beside_headless(runs_dir: Path) -> Iterator[tuple[Watched, Terminal]]:
    """A run that was launched from the command line, and a dashboard that looks on."""
    with Terminal([*TUIAPP, "run", "quickstart", *CPU], columns=120, lines=40) as headless:
        headless.wait("epoch +1/", PATIENCE_S)
        with (
            watching(find_run("latest", runs_dir)) as run,
            Terminal([*TUIAPP, "attach"], columns=120, lines=40) as terminal,
        ):
            terminal.wait(r"epoch +[3-9]/", PATIENCE_S)
            yield run, terminal


def _runs_and_compare() -> None:
    for rate in ("0.003", "0.0003"):
        subprocess.run(
            [*TUIAPP, "run", "quickstart", *CPU, "--set", f"learning_rate={rate}", "--set", "epochs=6"], check=True
        )
    # The other processes of this machine are nobody's business.
    with Terminal([*ALONE, *TUIAPP], columns=120, lines=40) as terminal:
        terminal.wait("CPU ranks|GPU")
        terminal.press("f3")
        terminal.wait("host memory")
        # A short history is gathered.
        terminal.wait_for_silence(0.5, 20)
        _take(terminal, "devices")
    with Terminal(TUIAPP, columns=120, lines=40) as terminal:
        terminal.wait("CPU ranks|GPU")
        terminal.press("ctrl+g")
        terminal.wait("5 runs")
        terminal.press("x", "down", "x", "end", "x")
        terminal.wait("3 marked")
        _take(terminal, "runs")
        terminal.press("c")
        terminal.wait("Compare 3 runs")
        terminal.wait_for_silence(1, 5)
        _take(terminal, "compare")
        terminal.press("escape")
        terminal.wait("3 marked")
        terminal.press("p")
        terminal.wait("REPLAY")
        terminal.press(*["."] * 8)
        _take(terminal, "replay")


def _take(terminal: Terminal, name: str) -> None:
    terminal.wait_for_silence(0.6, 2)
    path = HERE / f"{name}.png"
    picture.save(picture.cells_of(terminal.screen), path)
    print(path)


if __name__ == "__main__":
    main()
