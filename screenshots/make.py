"""Makes pictures of the real program with real training: `python -m screenshots.make`.

Without options they are this directory's. To look at every screen at several sizes and in several themes:

    python -m screenshots.make --into DIR --sizes 80x24 120x40 200x60 --themes textual-dark textual-light

Needs the `dev` extra and the font DejaVu Sans Mono (Debian: fonts-dejavu-core). Takes some minutes a theme; presets and
runs are made in a temporary directory.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from textual.theme import BUILTIN_THEMES

from screenshots import picture
from tests.kit.harness import Watched, watching
from tests.kit.terminal import Terminal
from tuiapp.library.find import find_run
from tuiapp.screens.run_panels import PANELS
from tuiapp.trainers.config.options import HANG_VARIABLE
from tuiapp.trainers.config.settings import save_setting
from tuiapp.trainers.contract.events import Alert

HERE = Path(__file__).parent
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
CPU = ("--set", "platform=cpu", "--set", "devices=2")

USUAL, SMALL = (120, 40), (80, 24)

BOTH = ("configure", "completed")
"""What the documents show at the small size, too."""

PATIENCE_S = 400.0
"""What a busy machine may take for anything."""


class Look(NamedTuple):
    """What keys bring on the screen, and which take it away."""

    name: str
    keys: tuple[str, ...]
    shows: str
    """A pattern on the screen then."""
    back: tuple[str, ...] = ("escape",)


OF_CONFIGURE = (
    Look("field", ("tab",), "▾"),
    Look("menu", ("tab", "down", "enter"), "resnet18", ("escape", *["up"] * 2)),
    Look("palette", ("ctrl+p",), "Search"),
    Look("configure-keys", ("?",), "Everywhere", ("?",)),
    Look("handbook", ("f1",), "Contents"),
)
OF_A_RUN = (
    *(Look(f"panel-{name}", (str(n),), name, ("escape",)) for n, name in enumerate(PANELS, 1) if name != "failure"),
    Look("metrics", ("m",), "Metric"),
    Look("one-chart", ("M",), "loss", ("M",)),
    Look("grid", ("G",), "metrics"),
    Look("grid-large", ("G", "right", "enter"), "metrics", ("escape", "escape")),
    Look("export", ("e",), "Export"),
    Look("about", ("i",), "Note"),
    Look("train-longer", ("u",), "from step"),
    # A resize ends the reading of values.
    Look("cursor", ("v", "left"), "paused", ()),
)
OF_RUNS = (
    Look("runs-keys", ("?",), "Everywhere", ("?",)),
    Look("runs-filter", ("/", *"completed"), "completed", ("escape",)),
    Look("delete", ("d",), "Delete"),
)


@dataclass(frozen=True)
class Camera:
    """Takes pictures, by default those of the documents."""

    into: Path = HERE
    sizes: tuple[tuple[int, int], ...] = ()
    """Columns and lines of every picture."""
    theme: str = ""

    def take(self, terminal: Terminal, name: str) -> None:
        sizes = self.sizes or ((USUAL, SMALL) if name in BOTH else (USUAL,))
        for columns, lines in sizes:
            if (columns, lines) != (terminal.screen.columns, terminal.screen.lines):
                terminal.resize(columns, lines)
            terminal.wait_for_silence(1.5, 8)
            of = f"{columns}x{lines}" if self.sizes or (columns, lines) != USUAL else ""
            path = self.into / f"{'-'.join(filter(None, (name, of, self.theme)))}.png"
            picture.save(picture.cells_of(terminal.screen), path)
            print(path, flush=True)
        terminal.resize(*USUAL)
        terminal.wait_for_silence(0.3, 1)

    def take_looks(self, terminal: Terminal, looks: Iterable[Look]) -> None:
        """Takes what no document shows, if not for the documents."""
        for look in looks if self.into != HERE else ():
            terminal.press(*look.keys)
            terminal.wait(look.shows)
            self.take(terminal, look.name)
            terminal.press(*look.back)
            terminal.wait_for_silence()


def main() -> None:
    """Make them all."""
    parser = argparse.ArgumentParser(description="Makes pictures of the real program with real training.")
    parser.add_argument("--into", metavar="DIR", type=Path, default=HERE, help="where to; then of all screens")
    parser.add_argument("--sizes", metavar="COLUMNSxLINES", type=_size, nargs="+", default=[])
    parser.add_argument("--themes", metavar="THEME", nargs="+", default=[""], choices=["", *BUILTIN_THEMES])
    given = parser.parse_args()
    into = given.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    for theme in given.themes:
        with tempfile.TemporaryDirectory() as home:
            _all(Camera(into, tuple(given.sizes), theme), Path(home))


def _size(words: str) -> tuple[int, int]:
    columns, lines = words.split("x")
    return int(columns), int(lines)


def _all(camera: Camera, home: Path) -> None:
    places = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "TUIAPP_RUNS_DIR": str(home / "runs"),
        "LANG": "C.UTF-8",
        # A run whose rank was stopped is told of after seconds, not half a minute.
        HANG_VARIABLE: "5",
    }
    os.environ.update(places)
    # Where an export would go is shown.
    os.chdir(home)
    if camera.theme:
        save_setting("theme", camera.theme)
    runs_dir = home / "runs"
    _configure_and_run(camera, runs_dir)
    _failed(camera, runs_dir)
    _hang(camera, runs_dir)
    _runs_and_compare(camera)
    _script(camera)


def _configure_and_run(camera: Camera, runs_dir: Path) -> None:
    with Terminal([*TUIAPP, "--runs-dir", str(runs_dir)], columns=120, lines=40) as terminal:
        terminal.wait("CPU ranks|GPU")
        camera.take(terminal, "configure")
        terminal.press("ctrl+s")
        terminal.wait("Save preset")
        camera.take(terminal, "save-preset")
        terminal.press("escape")
        terminal.wait_for_silence()
        camera.take_looks(terminal, OF_CONFIGURE)
        terminal.press("ctrl+r")
        terminal.wait("RUNNING", PATIENCE_S)
        with watching(find_run("latest", runs_dir)) as run:
            terminal.wait(r"epoch +[6-9]/", PATIENCE_S)
            camera.take(terminal, "run")
            terminal.press("q")
            terminal.wait("continues after you quit")
            camera.take(terminal, "leave")
            terminal.press("escape")
            run.end(PATIENCE_S)
            terminal.wait("COMPLETED")
            camera.take(terminal, "completed")
            terminal.press("?")
            terminal.wait("Everywhere")
            camera.take(terminal, "keys")
            terminal.press("?")
            terminal.wait_for_silence()
            camera.take_looks(terminal, OF_A_RUN)


def _failed(camera: Camera, runs_dir: Path) -> None:
    """A rank is killed."""
    with _beside_headless(runs_dir) as (run, terminal):
        os.kill(run.pid(1), signal.SIGKILL)
        terminal.wait("FAILED")
        camera.take(terminal, "failed")


def _hang(camera: Camera, runs_dir: Path) -> None:
    """A rank is stopped, as by a debugger."""
    with _beside_headless(runs_dir) as (run, terminal):
        os.kill(run.pid(1), signal.SIGSTOP)
        run.wait(Alert, lambda alert: alert.kind in ("hang", "stopped"), PATIENCE_S)
        terminal.wait("no progress|stopped")
        camera.take(terminal, "hang")


def _script(camera: Camera) -> None:
    """A script of the user's own, with one line that reports."""
    script = ["run", str(HERE.parent / "tuiapp" / "examples" / "ddp_digits.py"), *CPU, "--", "--epochs", "40"]
    with Terminal([*TUIAPP, *script], columns=120, lines=40) as headless:
        headless.wait("step [3-9][0-9][0-9]", PATIENCE_S)
        with Terminal([*TUIAPP, "attach"], columns=120, lines=40) as terminal:
            terminal.wait("COMPLETED", PATIENCE_S)
            camera.take(terminal, "script")


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


def _runs_and_compare(camera: Camera) -> None:
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
        camera.take(terminal, "devices")
    with Terminal(TUIAPP, columns=120, lines=40) as terminal:
        terminal.wait("CPU ranks|GPU")
        terminal.press("ctrl+g")
        terminal.wait("5 runs")
        terminal.press("x", "down", "x", "end", "x")
        terminal.wait("3 marked")
        camera.take(terminal, "runs")
        camera.take_looks(terminal, OF_RUNS)
        terminal.press("c")
        terminal.wait("Compare 3 runs")
        terminal.wait_for_silence(1, 5)
        camera.take(terminal, "compare")
        terminal.press("escape")
        terminal.wait("3 marked")
        terminal.press("p")
        terminal.wait("REPLAY")
        terminal.press(*["."] * 8)
        terminal.wait(r"step +\d")
        # It stands still at every size.
        terminal.press(" ")
        terminal.wait("space play")
        camera.take(terminal, "replay")


if __name__ == "__main__":
    main()
