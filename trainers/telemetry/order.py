"""What a sampler is told when it is started: its only argument, as JSON."""

from __future__ import annotations

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to sample, and how."""

    run_dir: str
    """Whose disk is looked at."""
    ranks: dict[int, int] = {}
    """Rank → its process."""
    gpus: str = ""
    """As in CUDA_VISIBLE_DEVICES: indices or UUIDs; "all"; "" for none."""
    interval_s: float = 1.0
    handover_fd: int | None = None
    """An inherited `Handover`."""
    left_alone: dict[str, float] = {}
    """Libraries that are not to be called, each until a moment of the monotonic clock."""


def encode_order(order: Order) -> str:
    """An order as the argument of a command."""
    return msgspec.json.encode(order).decode()


def decode_order(argument: str) -> Order:
    """The order that a command got."""
    return msgspec.json.decode(argument, type=Order)
