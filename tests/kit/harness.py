"""Starts real runs for tests, waits for what they write, and leaves no process behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from tests.kit import reported
from tests.kit.mxnet_environment import interpreter_of
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, AnyEvent, Metrics, RankStarted, RunEnded, RunStarted
from tuiapp.trainers.contract.journal import JournalReader
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.launch import launch, resume

E = TypeVar("E", bound=AnyEvent)

START_S = 60.0
"""What a loaded machine may take until the first step."""

END_S = 150.0
"""What a loaded machine may take to get through a short run; a test has 180 s."""

GONE_S = 30.0
"""What a loaded machine may take until the last process of a run that is over has ended."""

MLP = RunConfig(model="mlp", platform="cpu", devices=2, epochs=100_000, checkpoint_every=1)
"""Runs until it is ended, however fast the machine; a step takes a few milliseconds."""

OF_THE_MACHINE = ("disk", "shm")
"""Alerts that say how full the machine is on which the tests happen to run."""


@dataclass(frozen=True)
class Gate:
    """Where a rank waits before it starts a step, until a test has seen or done what it wants."""

    path: Path

    def open(self) -> None:
        """Let the rank on."""
        self.path.touch()


@dataclass
class Watched:
    """A run, and what it has written so far."""

    run: RunDir
    offset: int = 0
    """Where the attempt begins in the journal that is watched."""
    events: list[AnyEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = JournalReader(self.run.journal, self.offset)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, newly written ones included."""
        while events := self._reader.read():
            self.events += events
        return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[E], which: Callable[[E], bool] = lambda _: True, seconds: float = START_S) -> E:
        """The first event of a kind for which something holds; fails when it does not come in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self.of(kind):
                if which(event):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"no such {kind.__name__} within {seconds} s; there are {self.events[-20:]}")

    def at_step(self, step: int) -> None:
        """Wait until every rank has reported a step; fails when one does not get on in time."""
        for rank in range(self.started.world_size):
            while (last := self.last_step(rank)) < step:
                self.wait(Metrics, lambda event, rank=rank, last=last: event.rank == rank and event.last_step > last)  # type: ignore[misc]

    def last_step(self, rank: int) -> int:
        """The last step that a rank has reported; 0 before the first."""
        return max((event.last_step for event in self.reports(rank)), default=0)

    def alerts(self) -> list[Alert]:
        """What was said of the run itself."""
        return [alert for alert in self.of(Alert) if alert.kind not in OF_THE_MACHINE]

    def end(self, seconds: float = END_S) -> RunEnded:
        """The run's last event."""
        return self.wait(RunEnded, seconds=seconds)

    @property
    def started(self) -> RunStarted:
        """The run's first event."""
        return self.wait(RunStarted)

    def pid(self, rank: int) -> int:
        """A rank's process."""
        return self.wait(RankStarted, lambda event: event.rank == rank).pid

    def steps_of(self, rank: int) -> list[int]:
        """The numbers of all steps that a rank has reported, in the order of the journal."""
        return [step for event in self.reports(rank) for step in range(event.first_step, event.last_step + 1)]

    def reports(self, rank: int | None = None) -> list[Metrics]:
        """The batches of steps, of one rank or of all."""
        return reported.of_steps(self.of(Metrics), rank)

    def losses(self, rank: int) -> list[float]:
        """A rank's losses, step by step; 0 where they are not finite."""
        return reported.losses(self.of(Metrics), rank)

    def evaluations(self) -> list[reported.Evaluation]:
        """All of them."""
        return reported.evaluations(self.of(Metrics))

    def processes(self, module: str = "tuiapp.trainers.") -> list[psutil.Process]:
        """What still runs of it: whatever has its directory's name in its command line or environment.

        Args:
            module: What the name of the process's module begins with.
        """
        return [process for process in psutil.process_iter() if self._belongs(process, module)]

    def wait_gone(self, seconds: float = GONE_S) -> float:
        """Wait until no process of the run is left; gives the seconds that took."""
        began = time.monotonic()
        while left := self.processes():
            assert time.monotonic() - began < seconds, f"still there after {seconds} s: {left}"
            time.sleep(0.01)
        return time.monotonic() - began

    def _belongs(self, process: psutil.Process, module: str) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            command = process.cmdline()
            token = process.environ().get("TUIAPP_RUN_TOKEN", "")
        except psutil.Error:
            return False
        ours = any(word.startswith(module) for word in command)
        return ours and any(self.run.run_id in word for word in (*command, token))


def wait_dead(processes: Iterable[psutil.Process], seconds: float = GONE_S) -> float:
    """Wait until processes have ended, whether or not anybody has collected them; gives the seconds that took."""
    began = time.monotonic()
    while left := [process for process in processes if _is_alive(process)]:
        assert time.monotonic() - began < seconds, f"still there after {seconds} s: {left}"
        time.sleep(0.005)
    return time.monotonic() - began


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def watching(run: RunDir, offset: int = 0) -> Iterator[Watched]:
    """A run, all of whose processes are ended afterwards."""
    watched = Watched(run, offset)
    try:
        yield watched
    finally:
        for process in watched.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        watched.wait_gone()
        # A process that exits has no command line any more before it lets go of its files.
        run.wait_until_over(GONE_S)


@contextmanager
def launched(config: RunConfig, runs_dir: Path, about: About | None = None) -> Iterator[Watched]:
    """Launch a run for a test; with the interpreter that its backend needs, if that is not this one."""
    config = msgspec.structs.replace(config, python=config.python or interpreter_of(config.backend))
    with watching(launch(config, runs_dir, about=about)) as watched:
        yield watched


@contextmanager
def resumed(run: RunDir, config: RunConfig | None = None) -> Iterator[Watched]:
    """Resume a run for a test; only what this attempt writes is watched."""
    with watching(run, resume(run, config).offset) as watched:
        yield watched
