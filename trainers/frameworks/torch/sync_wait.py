"""How long a rank waits for the others' gradients: what DDP has timed of some steps, reported.

DDP times the backward pass and the exchange of gradients, which overlap, of its first ten steps, and then of each
hundredth (`DDPLoggingData` in torch/csrc/distributed/c10d/logger.cpp). What is left of the exchange when the rank's own
backward pass has ended is waiting. The functions are private: of a version of PyTorch without them nothing is reported.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from tuiapp.trainers.contract.metrics import SYNC_WAIT
from tuiapp.trainers.rank.reporter import Reporter

FIRST, EVERY = 10, 100
"""Steps that DDP times: the first ones, and then one of so many."""
EVERY_ON_CPU = 20
"""There timing is no more than reading a clock; on a GPU it waits for the step's end."""


class SyncWait:
    def __init__(self, ddp: nn.Module, device: torch.device, report: Reporter) -> None:
        self._report, self._given, self._every = report, 0, EVERY
        self._read = getattr(ddp, "_get_ddp_logging_data", None) if dist.get_world_size() > 1 else None
        if device.type == "cpu" and (choose := getattr(ddp, "_set_ddp_runtime_logging_sample_rate", None)):
            choose(EVERY_ON_CPU)
            self._every = EVERY_ON_CPU

    def report(self, step: int) -> None:
        """Called after each step; reports the one before, if DDP has timed that."""
        timed = self._given
        self._given += 1
        if self._read is None or not timed or (timed > FIRST and timed % self._every):
            return
        found = self._read()
        waited = found.get("backward_comm_time", 0) - found.get("backward_compute_comm_overlap_time", 0)
        if found.get("iteration") == timed:
            self._report.metrics(step - 1, {SYNC_WAIT: max(0, waited) / 1e9})
