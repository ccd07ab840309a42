"""What the makers' libraries have in common for the sampler: each is a source of GPUs, each GPU can be sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainers.contract.samples import DeviceSample


class SourceError(Exception):
    """A library, or one of its GPUs, tells nothing; the message says why."""


class Gpu(Protocol):
    """One GPU."""

    index: int
    uuid: str
    name: str

    def sample(self, now: float) -> DeviceSample:
        """The GPU at this moment of the monotonic clock.

        Raises:
            SourceError: it tells nothing any more.
        """


class Source(Protocol):
    """A maker's library."""

    name: str
    """As people know it."""
    no_gpus: str
    """What is said where it finds none that is to be sampled."""

    def open(self) -> Sequence[Gpu]:
        """Load and start the library; callable again after it failed.

        Returns:
            The GPUs to be sampled.

        Raises:
            SourceError: it cannot be used.
        """


class DeadGpu:
    """A GPU that could not even be looked at.

    Args:
        index: The driver's.
        uuid: As it was asked for.
        problem: Why.
    """

    name = ""

    def __init__(self, index: int, uuid: str, problem: str) -> None:
        self.index, self.uuid, self._problem = index, uuid, problem

    def sample(self, now: float) -> DeviceSample:
        """Always fails."""
        raise SourceError(self._problem)
