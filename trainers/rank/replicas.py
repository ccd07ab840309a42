"""Whether the devices' replicas of a model are still equal: their checksums, compared after each epoch.

Replicas that begin alike and make the same updates stay alike, bit for bit. They part when a bit of memory flips, or
when something changes on each device by itself, such as a buffer that nobody keeps alike; the loss may then look as
good as ever, and a checkpoint has the first device's weights alone.

GPUs of several models need not round alike: only those of one model are compared with each other, which is said.

The checksum of an array is the sum of its values' bits, read as integers, modulo 2^32: whatever the order of the sum
it is the same, and a single bit that differs always shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.contract.events import Alert, Differing, Replicas
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.state.messages import describe_ranks

Checksums: TypeAlias = tuple[Sequence[str], npt.NDArray[np.integer]]
"""The names of the arrays, and the checksum of each on every rank, [ranks, arrays]."""

STATISTICS = ("running_mean", "running_var", "moving_mean", "moving_variance")
"""How BatchNorm's statistics are called, which each rank has of its own examples: no part of what is to be equal."""


SEVERAL_MODELS = "the GPUs are of several models, which may round differently: only replicas on the same are compared"


class Comparison:
    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._equal_at = 0
        self._differing: list[Differing] = []
        self._alerted: set[int] = set()
        self._has_said = False

    def add(self, step: int, checksums: Checksums, parts: Sequence[int] = (), models: Sequence[int] = ()) -> None:
        """Reports whether the replicas are equal after a step; an alert says when that changes.

        See `find_differing` for `parts` and `models`.
        """
        names, sums = checksums
        if len(set(models)) > 1 and not self._has_said:
            self._report.send_from_rank0(Alert(kind="replicas", severity="info", step=step, text=SEVERAL_MODELS))
            self._has_said = True
        if len(set(models)) == len(sums):
            return
        differing = find_differing(names, sums, parts, models)
        self._report.send_from_rank0(Replicas(step=step, replicas=len(sums), arrays=len(names), differing=differing))
        if differing and differing != self._differing:
            text = self._describe(step, len(sums), differing)
            first = differing[0].rank
            self._report.send_from_rank0(Alert(kind="replicas", severity="error", rank=first, step=step, text=text))
            self._alerted.add(first)
        elif not differing:
            self._equal_at = step
            text = f"all replicas are equal again after step {step:,}"
            for rank in sorted(self._alerted):
                self._report.send_from_rank0(
                    Alert(kind="replicas", severity="info", rank=rank, step=step, text=text, ended=True)
                )
            self._alerted.clear()
        self._differing = differing

    def _describe(self, step: int, replicas: int, differing: list[Differing]) -> str:
        ranks = [replica.rank for replica in differing]
        lowest = min({*range(replicas)} - {*ranks}, default=0)
        whose = "those of most ranks" if 2 * len(ranks) < replicas else f"rank {lowest}'s"
        text = f"the weights of {describe_ranks(ranks)} differ from {whose} after step {step:,}, first in "
        before = f"; all were equal after step {self._equal_at:,}" if self._equal_at else ""
        return f"{text}{differing[0].array}{before}"


def find_differing(
    names: Sequence[str], sums: npt.NDArray[np.integer], parts: Sequence[int] = (), models: Sequence[int] = ()
) -> list[Differing]:
    """Returns replicas that differ from the majority, or on a tie from the lowest rank's, each with its first array.

    `sums` is int [ranks, arrays], the names are in the same order. `parts` says of each array in how many parts it is,
    which ranks have in turn: only those with the same part are compared. By default each is whole. `models` tells apart
    the models of the ranks' devices: only those on the same are compared. By default all are alike.
    """
    first_array: dict[int, str] = {}
    models = models or [0] * len(sums)
    for number in np.flatnonzero((sums != sums[0]).any(axis=0)).tolist():
        count = parts[number] if parts else 1
        for part, model in product(range(count), set(models)):
            ranks = [rank for rank in range(part, len(sums), count) if models[rank] == model]
            if not ranks:
                continue
            column = sums[ranks, number]
            _, first, counts = np.unique(column, return_index=True, return_counts=True)
            usual = column[min(first[counts == counts.max()])]
            for index in np.flatnonzero(column != usual).tolist():
                first_array.setdefault(ranks[index], names[number])
    return [Differing(rank, first_array[rank]) for rank in sorted(first_array)]
