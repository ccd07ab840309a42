"""A queue in a directory of its own, whose processes all end with the test."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import RunEnded, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir
from tuiapp.trainers.contract.sidecars import find_waiting
from tuiapp.trainers.experiments import queue

PATIENCE_S = 120.0


def wait_until(holds: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Waits until something holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, holds
        time.sleep(0.02)


class Queue:
    """What waits in a directory of runs, and the processes that see to it."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir

    @property
    def waiting(self) -> list[str]:
        """The runs that wait, by name, the next one first."""
        return [one.run.run_id for one in find_waiting(self.runs_dir)]

    @property
    def runs(self) -> list[RunDir]:
        return [RunDir(path) for path in self.runs_dir.iterdir() if RUN_ID.fullmatch(path.name)]

    def started(self) -> list[tuple[float, str]]:
        """When which run started, in that order; one that was started twice is there twice."""
        return sorted(
            (event.time, run.run_id)
            for run in self.runs
            for event in JournalReader(run.journal).rest()
            if isinstance(event, RunStarted)
        )

    def begun(self) -> set[str]:
        """The runs that have started and not ended."""
        marks = {
            run.run_id: [
                event for event in JournalReader(run.journal).rest() if isinstance(event, RunStarted | RunEnded)
            ]
            for run in self.runs
        }
        return {run_id for run_id, found in marks.items() if found and isinstance(found[-1], RunStarted)}

    def processes(self, *names: str) -> list[psutil.Process]:
        """The processes that belong to this directory; of these modules, or else all."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            mine = any(word.startswith(str(self.runs_dir)) for word in words)
            if mine and (not names or any(f"tuiapp.trainers.experiments.{name}" in words for name in names)):
                found.append(process)
        return found

    def only(self, name: str) -> psutil.Process:
        """The process of a module, once another that has met it has ended."""
        wait_until(lambda: len(self.processes(name)) == 1)
        return self.processes(name)[0]

    def kill(self, *names: str) -> None:
        """Kills processes as `kill -9` does."""
        for process in self.processes(*names):
            try:
                process.kill()
                process.wait(10)
            except psutil.NoSuchProcess:
                continue

    def is_over(self) -> bool:
        """Whether nothing waits or runs, or is to be tried again: a keeper that has only just started has no name."""
        waits = self.waiting or queue.has_work(self.runs_dir)
        return not waits and not any(run.is_live() for run in self.runs) and not self.processes("queue_keeper")

    def end(self) -> None:
        """Ends all that belongs to it."""
        deadline = time.monotonic() + PATIENCE_S
        while found := self.processes():
            self.kill()
            assert time.monotonic() < deadline, found


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path / "runs")
    yield made
    if made.runs_dir.exists():
        made.end()


def script(directory: Path, text: str, name: str = "train.py") -> RunConfig:
    """A run of one process that runs some lines of Python."""
    file = directory / name
    file.write_text(text)
    return RunConfig(backend="script", script=str(file), platform="cpu", devices=1, python=sys.executable)


__all__ = ["Queue", "queue", "script", "wait_until"]
