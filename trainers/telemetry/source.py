"""The interface to the makers' libraries: each is a source of GPUs, each GPU can be sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainers.config import machine
from trainers.contract.events import DeviceSample


class SourceError(Exception):
    """A library, or one of its GPUs, no longer answers; the message says why."""


class Gpu(Protocol):
    index: int
    uuid: str
    name: str

    def sample(self, now: float) -> DeviceSample:
        """Samples at this time on the monotonic clock; raises SourceError if the GPU no longer answers."""


class Source(Protocol):
    name: str
    no_gpus: str
    """Message if it finds none to sample."""

    def open(self) -> Sequence[Gpu]:
        """Loads and starts the library; callable again after a failure. Raises SourceError if it cannot be used."""


class DeadGpu:
    name = ""

    def __init__(self, index: int, uuid: str, problem: str) -> None:
        self.index, self.uuid, self._problem = index, uuid, problem

    def describe(self, now: float) -> list[machine.Gpu]:
        raise SourceError(self._problem)

    def sample(self, now: float) -> DeviceSample:
        raise SourceError(self._problem)
