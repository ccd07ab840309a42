"""Shares of the batch by the ranks' measured speed, before the first step."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import Tensor, nn

from trainers.config.division import MEASURED, apportion
from trainers.config.plan import Plan
from trainers.contract.events import Alert
from trainers.frameworks.torch.ranks import TrainingSet
from trainers.rank.checkpoints import Checkpoints
from trainers.rank.reporter import Reporter

WARM_UP, PASSES = 3, 10


def with_measured_shares(
    plan: Plan,
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    training_set: TrainingSet,
    device: torch.device,
    report: Reporter,
    checkpoints: Checkpoints,
) -> Plan:
    """The plan with shares by speed, if they are to be measured: those of the checkpoint, or measured now.

    All ranks call it, before any wraps its model. Each times forward and backward passes of an equal share by itself,
    with no exchange in them, while the others do. The model is left as it was; random numbers are drawn.
    """
    if plan.config.shares != MEASURED:
        return plan
    if not checkpoints.measured:
        own = torch.tensor([_seconds(plan, model, loss_of, training_set, device)], dtype=torch.float64, device=device)
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, own)
        seconds = [float(one) for one in gathered]
        parts = plan.config.accumulate
        units = apportion(plan.config.global_batch_size // parts, [1 / one for one in seconds])
        checkpoints.measured = tuple(unit * parts for unit in units)
        times = ", ".join(f"{1000 * one:.3g}" for one in seconds)
        shares = ":".join(map(str, checkpoints.measured))
        text = f"of each batch the ranks take {shares} examples, as measured: one takes them {times} ms"
        report.once(Alert(kind="shares", severity="info", text=text))
    return replace(plan, examples=checkpoints.measured)


def _seconds(
    plan: Plan,
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    training_set: TrainingSet,
    device: torch.device,
) -> float:
    """Seconds for each example, the median of some passes."""
    config = plan.config
    x, y = training_set.first(max(1, config.global_batch_size // (config.devices * config.accumulate)))
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    took = []
    # As in training, where ranks that share a machine compute at the same time.
    dist.barrier()
    for number in range(WARM_UP + PASSES):
        began = perf_counter()
        loss_of(x, y).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if number >= WARM_UP:
            took.append(perf_counter() - began)
    model.zero_grad()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    return median(took) / len(x)
