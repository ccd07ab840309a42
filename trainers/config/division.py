"""How a run's devices are divided over its nodes, and each global batch over its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import fsum
from typing import TYPE_CHECKING

from tuiapp.trainers.config.mesh import devices_per_node, divide_batch, mesh_of, weights

if TYPE_CHECKING:
    from tuiapp.trainers.config.run_config import RunConfig

BAND = 0.1
"""A rank's speed counts as another one if it differs by more than this part of the ranks' mean, …"""
CLEAR = 0.8
"""… in this part of the rounds in which it was measured: other programs slow a rank down for some of them."""
SMALLEST = 1 / 8
"""Least fraction of an equal share that a rank is given, however slow it was measured to be."""


def devices_of_nodes(config: RunConfig) -> tuple[int, ...]:
    """Returns the devices of each node of a placed configuration."""
    return devices_per_node(config.devices_per_node) or (config.devices // config.nodes,) * config.nodes


def devices_of(config: RunConfig, node: int) -> int:
    """Returns the devices of one node; a job that somebody else has started may have more nodes than are known."""
    devices = devices_of_nodes(config)
    return devices[min(node, len(devices) - 1)]


def node_of(rank: int, ranks: tuple[int, ...]) -> int:
    """Returns the node of a rank, where each has so many; the last one's for a rank beyond."""
    return next((node for node, end in enumerate(accumulate(ranks)) if rank < end), len(ranks) - 1)


def examples_of_ranks(config: RunConfig) -> tuple[int, ...]:
    """Returns the examples of each global batch that each rank takes, by `shares`; () for equally many, or not known.

    Of a placed configuration. Raises ValueError if there is no such division.
    """
    if not weights(config.shares):
        return ()
    return divide_batch(config.shares, config.global_batch_size, devices_of_nodes(config), config.accumulate)


def local_batches(config: RunConfig) -> set[int]:
    """Returns how many examples of a global batch a rank, or device, of a placed configuration may have."""
    equal = -(-config.global_batch_size // mesh_of(config.mesh, config.devices).batch)
    return {*examples_of_ranks(config)} or {equal}


def relative_speeds(rounds: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Returns the ranks' speeds beside their mean, from each one's seconds for an example in each round of measuring.

    All 1 unless one clearly differs: what slows a rank down for some rounds is another program.
    """
    # A script that reports imports this module, too, and may have one called `statistics` beside it.
    from statistics import fmean, median

    means = [fmean(1 / second for second in seconds) for seconds in rounds]
    of_ranks = [
        [1 / second / mean for second, mean in zip(seconds, means, strict=True)]
        for seconds in zip(*rounds, strict=True)
    ]

    def is_clear(speeds: list[float]) -> bool:
        sides = sum(speed < 1 - BAND for speed in speeds), sum(speed > 1 + BAND for speed in speeds)
        return max(sides) >= CLEAR * len(speeds)

    return tuple(map(median, of_ranks)) if any(map(is_clear, of_ranks)) else (1.0,) * len(of_ranks)


def shares_by_speed(units: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Divides so many in proportion to measured speeds, with a smallest share for each rank."""
    return apportion(units, speeds, int(SMALLEST * units / len(speeds)))


def apportion(units: int, speeds: Sequence[float], least: int = 0) -> tuple[int, ...]:
    """Divides so many in proportion to speeds, of which there are no more; the faster never gets less.

    Each gets at least `least`, and at least one, or two if it can be: BatchNorm cannot normalize a single value.
    """
    least = max(least, min(2, units // len(speeds)))
    total = fsum(speeds)
    exact = [units * speed / total for speed in speeds]
    parts = [max(least, int(share)) for share in exact]
    while sum(parts) != units:
        step = 1 if sum(parts) < units else -1
        able = [index for index, part in enumerate(parts) if part + step >= least]
        parts[max(able, key=lambda rank: (step * (exact[rank] - parts[rank]), step * speeds[rank]))] += step
    return tuple(parts)
