"""What the PyTorch backends share: devices, process group, optimizer, and what a checkpoint takes of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainers.checkpoints import Saved
from trainers.contract.config import RunConfig
from trainers.contract.events import Shard
from trainers.data import datasets
from trainers.runtime.reporter import Reporter

Arrays = dict[str, npt.NDArray[Any]]

EVAL_BATCH = 1024


def pick_device(config: RunConfig, report: Reporter) -> torch.device:
    """This rank's device, and the arithmetic that it shall use."""
    torch.backends.cudnn.allow_tf32 = config.precision != "float32"
    torch.set_float32_matmul_precision("highest" if config.precision == "float32" else "high")
    report.convert = lambda losses: torch.stack(losses).tolist()
    if config.platform == "cpu":
        report.rank_started("cpu")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    properties = torch.cuda.get_device_properties(device)
    report.rank_started(str(device), properties.name, config.device_ids[device.index])
    return device


def connect(rank: int, world_size: int, device: torch.device) -> None:
    """Join the process group.

    Rank 0 serves the rendezvous on a socket that was bound for it, on loopback, before any rank started: no other
    process can take the port in between.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listener = int(os.environ["TUIAPP_STORE_FD"]) if rank == 0 else None
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, world_size, is_master=rank == 0, master_listen_fd=listener
    )
    on_gpu = device.type == "cuda"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        device_id=device if on_gpu else None,
    )


def build_optimizer(config: RunConfig, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """The optimizer, in PyTorch's conventions."""
    rate, decay = config.learning_rate, config.weight_decay
    match config.optimizer:
        case "sgd":
            return torch.optim.SGD(
                parameters, rate, momentum=config.momentum, nesterov=config.nesterov, weight_decay=decay
            )
        case "adam":
            return torch.optim.Adam(parameters, rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, rate, weight_decay=decay)
        case "adadelta":
            return torch.optim.Adadelta(parameters, rate, weight_decay=decay)
    raise ValueError(config.optimizer)


def update(config: RunConfig, optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Make an update with the gradients that there are, clipped to `gradient_clip` in their global norm."""
    if config.gradient_clip:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, config.gradient_clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()


def to_device(images: datasets.Images, labels: datasets.Labels, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images as float32 [N, C, H, W], uint8 scaled to 0–1, and labels as int64 [N], on the device."""
    x = torch.from_numpy(images).to(device).permute(0, 3, 1, 2)
    if x.dtype == torch.uint8:
        x = x.float().div_(255)
    return x.contiguous(), torch.from_numpy(labels).to(device)


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """The statistics that BatchNorm keeps, by name; each rank has its own."""
    return {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def average(tensors: Iterable[Tensor], world_size: int) -> None:
    """Give every rank the mean of all ranks' tensors, in place."""
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= world_size


def snapshot(
    model: Mapping[str, Tensor], own: Collection[str], optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[Arrays, Arrays]:
    """Copies of all that training goes on from, for `trainers.checkpoints`; every rank calls this.

    Args:
        model: Weights and running statistics, by name.
        own: The names of those that each rank has its own of: running statistics, which training does not read.
        optimizer: The weights'.
        device: This rank's.

    Returns:
        The model, with the mean of what the ranks have their own of; and all else: the optimizer's state, and with a
        leading axis of ranks what each has of its own, the random state among it.
    """
    arrays, state = {}, {"ranks.random": _gather(torch.get_rng_state(), device)}
    if device.type == "cuda":
        state["ranks.random_cuda"] = _gather(torch.cuda.get_rng_state(device), device)
    for name, tensor in model.items():
        arrays[name] = _to_numpy(tensor)
        if name in own:
            state[f"ranks.{name}"] = _gather(tensor, device)
            arrays[name] = state[f"ranks.{name}"].mean(axis=0, dtype=arrays[name].dtype)
    for index, entry in optimizer.state_dict()["state"].items():
        for key, value in entry.items():
            if value is not None:
                state[f"optimizer.{index}.{key}"] = _to_numpy(torch.as_tensor(value))
    return arrays, state


def restore(
    saved: Saved, rank: int, optimizer: torch.optim.Optimizer, device: torch.device, world_size: int
) -> Mapping[str, npt.NDArray[Any]]:
    """Go on from a checkpoint.

    Returns:
        The model as this rank had it; with another number of ranks each starts from the mean of their statistics.
    """
    arrays: Mapping[str, npt.NDArray[Any]] = saved.model
    if len(saved.state["ranks.random"]) == world_size:
        mine = {name.removeprefix("ranks."): array[rank] for name, array in saved.state.items() if "ranks." in name}
        torch.set_rng_state(torch.from_numpy(mine.pop("random")))
        if device.type == "cuda" and "random_cuda" in mine:
            torch.cuda.set_rng_state(torch.from_numpy(mine.pop("random_cuda")), device)
        arrays = {**arrays, **{name: array for name, array in mine.items() if name in arrays}}
    entries: dict[int, dict[str, Tensor]] = {}
    for name, array in saved.state.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            entries.setdefault(int(index), {})[key] = torch.from_numpy(array)
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
    return arrays


def report_array(
    report: Reporter, name: str, local: Tensor, rank: int, mesh: Mapping[str, int], spec: Sequence[str | None]
) -> None:
    """Tell what this rank holds of an array.

    Args:
        report: This rank's.
        name: The array's.
        local: Its part here.
        rank: Whose.
        mesh: Mesh axis → ranks along it.
        spec: Per dimension of the array the mesh axis that splits it; those left out are whole.
    """
    spec = [*spec, *[None] * (local.dim() - len(spec))]
    index, shape = [], []
    for axis, size in zip(spec, local.shape, strict=True):
        start = rank * size if axis else 0
        index.append((start, start + size))
        shape.append(size * (mesh[axis] if axis else 1))
    shard = Shard(rank=rank, device=str(local.device), index=index, bytes=local.numel() * local.element_size())
    dtype = str(local.dtype).removeprefix("torch.")
    report.sharding(array=name, shape=shape, dtype=dtype, mesh=dict(mesh), spec=spec, shards=[shard])


def report_sharding(
    report: Reporter,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    rank: int,
) -> None:
    """Tell how the arrays of the step just made lie on the ranks: batch, labels, a parameter, its optimizer state."""
    mesh = {"batch": dist.get_world_size()}
    for name, part in zip(("batch", "labels"), batch, strict=True):
        report_array(report, name, part, rank, mesh, ["batch"])
    name, largest = max(parameters.items(), key=lambda item: item[1].numel())
    report_array(report, f"parameter {name}", largest, rank, mesh, [])
    for key, value in optimizer.state[largest].items():
        if isinstance(value, Tensor) and value.shape == largest.shape:
            report_array(report, f"optimizer {key} of {name}", value, rank, mesh, [])


def _gather(tensor: Tensor, device: torch.device) -> npt.NDArray[Any]:
    """A tensor of every rank: [ranks, …]."""
    mine = tensor.detach().to(device)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return _to_numpy(torch.stack(gathered))


def _to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """A copy on the host."""
    return np.array(tensor.detach().cpu().numpy())
