"""PyTorch FSDP2, fully sharded data parallel: one process per device, each with a part of every weight.

Parameters, their gradients and the optimizer's state are split over the ranks along their first axis: each holds one
N-th of them between steps, where DistributedDataParallel has a replica of all. Before a block of the model computes,
its weights are gathered from all ranks, and dropped afterwards; when its backward pass has ended, its gradients are
added up and scattered, so that each rank gets those of its own part, which it then updates. What is in no block, such
as a stem and a head, is one more part, kept from the forward to the backward pass; so is all of a model without blocks.
NCCL between GPUs, gloo between CPU ranks. Replaces

    torchrun --nproc-per-node=N train.py

with `fully_shard` in train.py. The batches, the order of Dropout's draws and BatchNorm are as with `torch-ddp`, and so
are checkpoints: whole arrays under the same names, from which any number of devices can go on. Each rank has other
parts: there are no replicas to compare.

Source: https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from tuiapp.trainers.config.mesh import MEASURED
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Held
from tuiapp.trainers.frameworks.torch.compile import compile_ahead, compile_model
from tuiapp.trainers.frameworks.torch.losses import Average, LossScale, begin, losses_of
from tuiapp.trainers.frameworks.torch.ranks import (
    HALVES,
    autocast,
    average_statistics,
    backward,
    build_model,
    build_optimizer,
    connect,
    memory_format,
    open_data,
    pick_device,
    predictor,
    report_array,
    report_sharding,
    steps_in_flight,
    sum_up,
    update,
)
from tuiapp.trainers.frameworks.torch.speed import with_measured_shares
from tuiapp.trainers.frameworks.torch.state import Snapshot, restore, snapshot
from tuiapp.trainers.frameworks.torch.sync_batch_norm import synchronize
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.evaluation import Sums, batch_size
from tuiapp.trainers.rank.loop import Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import datasets

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
BESIDE_BLOCKS = "all else"


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Trains one rank's part, from the first step, or the one after a checkpoint, to the last."""
    device = pick_device(plan.config, report)
    connect(plan.config, rank, device, report)
    Part(plan, rank, device, report, checkpoints).train()
    # Not after an exception: NCCL would wait for the kernels of ranks that wait for this one.
    dist.destroy_process_group()


class Part:
    def __init__(self, plan: Plan, rank: int, device: torch.device, report: Reporter, checkpoints: Checkpoints) -> None:
        config = plan.config
        self.plan, self.config, self.rank, self.device = plan, config, rank, device
        self.report, self.checkpoints = report, checkpoints
        self.training_set, self.x_test, self.y_test = open_data(plan, rank, device, memory_format(config, device))
        # All ranks make as many forward passes, in each of which they gather weights from each other.
        most = -(-plan.data.test_examples // config.devices)
        size = batch_size(plan)
        self.spare_batches = -(-most // size) - -(-len(self.y_test) // size)
        self.autocast = autocast(config, device)
        self.losses = losses_of(plan, device)
        if config.shares == MEASURED:
            # Of a whole replica: what is split waits for the other ranks in every pass.
            self.model = build_model(plan, device)
            plan = self.plan = with_measured_shares(
                plan, self.model, self.loss, self.training_set, device, report, checkpoints
            )
        # On the host: a part goes to the device as it is split. FSDP2 refuses weights that are channels last. Where
        # images are, so are the convolutions, and cuDNN rearranges each weight as it is used.
        self.model = build_model(plan, torch.device("cpu"))
        begin(plan, self.model, report, checkpoints)
        if config.sync_batch_norm:
            self.model = synchronize(self.model, device, plan.examples)
        self.parts = shard(
            self.model, init_device_mesh(device.type, (config.devices,), mesh_dim_names=("batch",)), config
        )
        # Dropout draws differently on every rank.
        torch.manual_seed((rank << 32) + config.seed)
        self.optimizer, self.average = build_optimizer(config, self.model), Average(config, self.model)
        self.loss_scale = LossScale(config, device)
        if resumed := checkpoints.resumed:
            restore(resumed, rank, self.model, self.optimizer, device, config.devices, self.average, self.loss_scale)

    def train(self) -> None:
        plan, report = self.plan, self.report
        if self.config.compile:
            x, y = self.training_set.first(plan.batch_of(self.rank) // self.config.accumulate)
            compile_ahead(report, self.model, self.device, lambda: self.loss(x, y))
        how = steps_in_flight(self.device, self.loss_scale)
        for work in training(plan, report, self.checkpoints, place=self.place, **how):
            match work:
                case Step():
                    x, y = self.training_set.batch(work.rows)
                    work.done(*self.step(x, y, float(work.rate)))
                    self.average.update(work.number)
                    if work.is_first:
                        split = work.rows[0], work.batch
                        report_sharding(report, self.model, self.optimizer, (x, y), self.rank, split)
                        self.report_parts()
                case Evaluate():
                    # For each forward pass all ranks gather weights from each other. Of a compiled model each size of
                    # a batch would be compiled.
                    with torch.compiler.set_stance("force_eager"), self.average.used():
                        work.done(self.evaluate(), partial(predictor, self.model, self.device, self.autocast))
                case Save():
                    work.done(*self.snapshot())
                case Export():
                    average_statistics(self.model, self.config.devices, self.plan.weight_of(self.rank))
                    self.checkpoints.export(self.snapshot().complete())

    def place(self, order: datasets.Rows) -> Iterable[Any]:
        """Returns this rank's examples of each step."""
        return self.training_set.place(order[:, self.plan.rows_of(self.rank)])

    def step(self, x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
        """Returns this rank's mean loss before the update, and the norm of clipped gradients; on the device."""
        self.optimizer.zero_grad()
        # Of each part gradients are reduced, though the last would do: kept whole they would take a replica's memory.
        weight = self.plan.weight_of(self.rank)
        loss = backward(self.loss, x, y, self.config.accumulate, self.loss_scale, weight=weight)
        norm = update(self.config, self.model, self.optimizer, rate, self.loss_scale)
        # Each rank has the sum over its own part.
        return loss, norm.full_tensor() if isinstance(norm, DTensor) else norm

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        with self.autocast:
            return self.losses.mean(self.model(x), y)

    def evaluate(self) -> Sums:
        """Returns sums over the test set, of which each rank has a part: see `sum_up`."""
        average_statistics(self.model, self.config.devices, self.plan.weight_of(self.rank))
        self.model.eval()
        part = self.rank, self.config.devices
        how = self.plan.data.classes, self.autocast, self.losses, part
        sums = sum_up(self.model, self.x_test, self.y_test, *how, at_once=batch_size(self.plan))
        with torch.no_grad(), self.autocast:
            for _ in range(self.spare_batches):
                self.model(self.training_set.first(1)[0])
        self.model.train()
        dist.all_reduce(sums)
        return sums.numpy(force=True)

    def snapshot(self) -> Snapshot:
        context = self.average, self.loss_scale, self.plan.examples
        return snapshot(self.model, self.optimizer, self.device, *context)

    def report_parts(self) -> None:
        """Reports the layout of each part's largest parameter, what this rank holds, and what a step exchanges."""
        parameters = dict(self.model.named_parameters())
        for names in self.parts.values():
            largest = max(names, key=lambda name: parameters[name].numel())
            report_array(self.report, f"parameter {largest}", parameters[largest], self.rank, {})
        state = [value for kept in self.optimizer.state.values() for value in kept.values() if torch.is_tensor(value)]
        held: dict[str, list[Tensor]] = {"parameters": [*parameters.values()], "optimizer": state}
        if self.average.kept:
            held["average"] = [*self.average.kept.values()]
        self.report.send(
            Held(
                rank=self.rank,
                device=str(self.device),
                held={kind: sum(map(own_bytes, tensors)) for kind, tensors in held.items()},
                whole={kind: sum(tensor.nbytes for tensor in tensors) for kind, tensors in held.items()},
                exchanged=self.exchanged(parameters) if self.config.devices > 1 else {},
            )
        )

    def exchanged(self, parameters: dict[str, nn.Parameter]) -> dict[str, dict[str, int]]:
        """Returns the bytes of the whole arrays in each collective of a step, by part of the model."""
        by_part = {}
        for part, names in self.parts.items():
            # In half the bits what is gathered has half the size; gradients are added up in float32.
            half = {name for name in names if self.config.precision in HALVES and not self.is_of_norm(name)}
            times = self.config.accumulate
            gathered = times * sum(parameters[name].nbytes // (1 + (name in half)) for name in names)
            calls = {"all-gather before forward": gathered}
            if part != BESIDE_BLOCKS:
                calls["all-gather before backward"] = gathered
            reduced = times * sum(parameters[name].nbytes for name in names if parameters[name].requires_grad)
            by_part[part] = {**calls, "reduce-scatter after backward": reduced}
        return by_part

    def is_of_norm(self, name: str) -> bool:
        """Whether a parameter is BatchNorm's, by its name."""
        return is_norm(self.model.get_submodule(name.rpartition(".")[0]))


def shard(model: nn.Module, mesh: DeviceMesh, config: RunConfig) -> dict[str, list[str]]:
    """Splits each block's parameters, then those in none, over the ranks, and compiles the blocks, if configured.

    In bfloat16 and float16 weights are gathered as such, and gradients added up in float32. BatchNorm's kernels take
    weights of the running statistics' type: those stay float32, and are gathered for themselves.

    Returns:
        The names of each part's parameters, by the block's name.
    """
    half = HALVES.get(config.precision)
    policy = MixedPrecisionPolicy(half, torch.float32) if half else MixedPrecisionPolicy()
    named_blocks = list(blocks(model))
    parts: dict[str, list[str]] = {
        name: [f"{name}.{parameter}" for parameter, _ in block.named_parameters()] for name, block in named_blocks
    }
    taken = {name for names in parts.values() for name in names}
    if beside := [name for name, _ in model.named_parameters() if name not in taken]:
        parts[BESIDE_BLOCKS] = beside
    if config.compile:
        # Blocks of one class have one function, which is compiled for each shape.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 2 * len(named_blocks))
        for module in [block for _, block in named_blocks] or [model]:
            # The gathering, which is around `forward`, stays outside.
            module.forward = compile_model(module.forward, cuda_graphs=False)
    for module in (*(block for _, block in named_blocks), model):
        norms = [layer for layer in module.modules() if is_norm(layer) and not isinstance(layer, FSDPModule)]
        if half and norms:
            fully_shard(norms, mesh=mesh, reshard_after_forward=module is not model)
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return parts


def blocks(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yields the outermost modules with parameters that are made of others, containers apart, with their names."""
    for name, child in model.named_children():
        if type(child) in CONTAINERS:
            yield from blocks(child, f"{path}{name}.")
        elif any(True for _ in child.children()) and any(True for _ in child.parameters()):
            yield f"{path}{name}", child


def own_bytes(tensor: Tensor) -> int:
    """Returns how many bytes of a tensor this rank holds."""
    return tensor.to_local().nbytes if isinstance(tensor, DTensor) else tensor.nbytes


def is_norm(module: nn.Module) -> bool:
    """Whether it is a BatchNorm of any dimension, synchronized or not."""
    return isinstance(module, _BatchNorm)
