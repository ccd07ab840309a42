"""What follows a run from the foreground while the run's directory is out of reach, deleted, or its supervisor dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.kit.harness import Gate, Watched, watching
from tuiapp.library.find import find_run
from tuiapp.trainers.state.follow import CHECK_EVERY_S

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
SAID_S = 60.0
"""What a loaded machine may take to say something."""


class Foreground:
    """A command that follows a run, and the lines that it has printed on stderr.

    Args:
        words: What comes after `tuiapp`.
    """

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*TUIAPP, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def said(self) -> str:
        """All of it."""
        return "".join(self.lines)

    def wait_said(self, words: str, seconds: float = SAID_S) -> None:
        """Wait until it has said something."""
        deadline = time.monotonic() + seconds
        while words not in self.said:
            assert time.monotonic() < deadline, f"never said {words!r}: {self.said}"
            time.sleep(0.005)

    def end(self) -> tuple[int, str]:
        """Wait for its end: the exit code, and stdout."""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        code = self.process.wait(SAID_S)
        self._reader.join(SAID_S)
        return code, out


@contextmanager
def foreground(*words: str) -> Iterator[Foreground]:
    """A command that is ended afterwards."""
    command = Foreground(*words)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


@contextmanager
def followed(runs_dir: Path, epochs: int) -> Iterator[tuple[Foreground, Watched]]:
    """A run that goes on, and the `tuiapp run` that follows it."""
    settings = ["platform=cpu", "devices=2", f"epochs={epochs}"]
    pairs = [part for setting in settings for part in ("--set", setting)]
    with foreground("run", "mlp", *pairs, "--json", "--runs-dir", str(runs_dir)) as command:
        command.wait_said("epoch 1/")
        with watching(find_run("latest", runs_dir)) as run:
            yield command, run


@contextmanager
def away(run: Watched) -> Iterator[None]:
    """The run's directory is at another place meanwhile."""
    place = run.run.path
    aside = place.with_name("aside")
    place.rename(aside)
    try:
        yield
    finally:
        aside.rename(place)


@pytest.fixture
def held(gate: Callable[[int, int], Gate], fake: Callable[..., None]) -> Gate:
    """Runs launched from now on wait at a step of their second epoch."""
    fake()
    return gate(0, 40)


@pytest.mark.nightly
def test_a_directory_that_is_away_for_a_while_changes_nothing(runs_dir: Path, held: Gate) -> None:
    with followed(runs_dir, 3) as (command, run):
        with away(run):
            command.wait_said("is unreachable; the run's supervisor is still alive")
            # Until it has looked once more: the first look is not the only one that it survives.
            time.sleep(1.2 * CHECK_EVERY_S)
        held.open()
        code, out = command.end()
    assert (code, json.loads(out)["status"], json.loads(out)["steps"]) == (0, "completed", 87)
    assert "COMPLETED" in command.said
    assert "LOST" not in command.said


def test_a_dead_supervisor_is_said_at_once(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake()
    with followed(runs_dir, 99999) as (command, run):
        os.kill(run.started.pid, signal.SIGKILL)
        killed = time.monotonic()
        command.wait_said("LOST: the run's supervisor died")
        seconds = time.monotonic() - killed
        code, out = command.end()
    print(f"\nkill -9 of the supervisor: said by the foreground after {seconds:.2f} s")
    assert seconds < 2
    assert (code, json.loads(out)["status"]) == (1, "failed")
