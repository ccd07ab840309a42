"""A reporter and the other end of its pipe, where the supervisor would be."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.kit import reported
from tuiapp.trainers.contract.events import AnyEvent, Metrics
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.stop_gate import StopGate
from tuiapp.trainers.run import wire

DEADLINE_S = 60.0


class Pipe:
    """A reporter, and the supervisor's end of its pipe."""

    def __init__(self, rank: int = 0, nan_policy: str = "warn", speaks_for: Sequence[int] | None = None) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self.reader = wire.rank_messages(self.read_fd)
        self.gate = StopGate()
        self.report = Reporter(rank, self._write_fd, self.gate, nan_policy, speaks_for)
        self.messages: list[Any] = []

    def wait(self, enough: Callable[[], bool]) -> None:
        """Read until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.read_fd, selectors.EVENT_READ)
            while not enough():
                assert time.monotonic() < deadline, self.messages[-5:]
                if selector.select(1.0):
                    self.messages += self.reader.read()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile the reporter's thread takes what there is no more than once, however slow the machine is."""
        go_on, convert = threading.Event(), self.report.convert

        def wait(losses: list[Any]) -> Sequence[float | Sequence[float]]:
            assert go_on.wait(DEADLINE_S)
            return convert(losses)

        self.report.convert = wait
        yield
        go_on.set()

    def close(self) -> list[AnyEvent]:
        """End the reporter; gives all that it has sent."""
        closing = threading.Thread(target=self.report.close)
        closing.start()
        while closing.is_alive():
            self.messages += self.reader.read()
        os.close(self._write_fd)
        self.wait(lambda: self.reader.ended)
        os.close(self.read_fd)
        assert self.reader.dropped == 0
        return self.messages

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]

    def reports(self, rank: int | None = None) -> list[Metrics]:
        return reported.of_steps(self.messages, rank)

    def losses(self, rank: int | None = None) -> list[float | None]:
        return reported.values(self.messages, LOSS, rank)

    def evaluations(self) -> list[reported.Evaluation]:
        return reported.evaluations(self.messages)

    def steps(self) -> list[int]:
        return [step for event in self.reports() for step in range(event.first_step, event.last_step + 1)]
