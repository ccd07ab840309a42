"""What the processes that measure all-reduces tell each other, a JSON line each: `tuiapp.trainers.run.bandwidth`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tuiapp.trainers.config.machine import Link
from tuiapp.trainers.config.plan import Plan


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured."""

    plan: Plan
    """Its devices, and the backend that exchanges."""
    token: str
    """In the environment of every process that this takes: see `tuiapp.trainers.contract.orphans`."""
    most_bytes: int
    """On each device."""
    seconds: float
    """What all of it may take, apart from the start."""


class Links(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    gpus: list[Link]


class Begins(msgspec.Struct, frozen=True, kw_only=True, tag="begins"):
    library: str
    """What exchanges: "gloo", "nccl", "xla"."""
    bytes: int
    """What comes next."""


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """All-reduces of one size."""

    bytes: int
    """Of the array on each device."""
    calls: int
    seconds: float
    """Of one, on average."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, tag="left_out"):
    """This size and the larger ones are not measured."""

    bytes: int
    why: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    why: str


Answer: TypeAlias = Links | Begins | Measured | LeftOut | Failed
