"""Shares of the batch by the ranks' measured speed, before the first step."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import Tensor, nn

from tuiapp.trainers.config.division import BAND, CLEAR, relative_speeds, shares_by_speed
from tuiapp.trainers.config.mesh import MEASURED
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.contract.events import Alert
from tuiapp.trainers.frameworks.torch.compile import unchanged_buffers
from tuiapp.trainers.frameworks.torch.ranks import TrainingSet
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.reporter import Reporter

WARM_UP, ROUNDS = 3, 11
ROUND_S = 0.1
"""Least seconds of a round: it has as many passes as they take, so that short passes are spread over a second, too."""


def with_measured_shares(
    plan: Plan,
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    training_set: TrainingSet,
    device: torch.device,
    report: Reporter,
    checkpoints: Checkpoints,
) -> Plan:
    """Returns the plan with shares by speed, if they are to be measured: those of the checkpoint, or measured now.

    All ranks call it, before any wraps its model. Each times forward and backward passes of an equal share by itself,
    with no exchange in them, while the others do. The model is left as it was; random numbers are drawn.
    """
    if plan.config.shares != MEASURED:
        return plan
    if not checkpoints.measured:
        rounds = _seconds(plan, model, loss_of, training_set, device)
        speeds, parts = relative_speeds(rounds), plan.config.accumulate
        units = shares_by_speed(plan.config.global_batch_size // parts, speeds)
        checkpoints.measured = tuple(unit * parts for unit in units)
        times = ", ".join(f"{1000 * median(seconds):.3g}" for seconds in zip(*rounds, strict=True))
        shares = ":".join(map(str, checkpoints.measured))
        text = f"of each batch the ranks take {shares} examples, as measured: one takes them {times} ms"
        if len(set(speeds)) == 1:
            text += f"; none was over {BAND:.0%} off their mean speed in {ceil(CLEAR * ROUNDS)} of {ROUNDS} rounds"
        report.send_from_rank0(Alert(kind="shares", severity="info", text=text))
    # Where all have the same, as without shares.
    return replace(plan, examples=checkpoints.measured if len(set(checkpoints.measured)) > 1 else ())


def _seconds(
    plan: Plan,
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    training_set: TrainingSet,
    device: torch.device,
) -> list[list[float]]:
    """Returns each round's seconds of each rank for an example."""
    config = plan.config
    x, y = training_set.first(max(1, config.global_batch_size // (config.devices * config.accumulate)))

    def run() -> None:
        loss_of(x, y).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    rounds = []
    with unchanged_buffers(model):
        for _ in range(WARM_UP):
            run()
        dist.barrier()
        for _ in range(ROUNDS):
            # They begin together: as in training, ranks that share a machine compute at the same time.
            began, passes, took = perf_counter(), 0, 0.0
            while took < ROUND_S:
                run()
                passes, took = passes + 1, perf_counter() - began
            local = torch.tensor([took / passes / len(x)], dtype=torch.float64, device=device)
            gathered = [torch.empty_like(local) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, local)
            rounds.append([float(seconds) for seconds in gathered])
    model.zero_grad()
    return rounds
