"""The training state with PyTorch, as a checkpoint holds it: weights, optimizer, random state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from tuiapp.trainers.frameworks.torch.average import Average
from tuiapp.trainers.frameworks.torch.loss_scale import LossScale
from tuiapp.trainers.rank.checkpoints import LOSS_SCALE, TRAINED, Saved
from tuiapp.trainers.rank.tensor_files import BFLOAT16, as_float32

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Snapshot: TypeAlias = tuple[Arrays, Arrays]
"""The model, and all else that training resumes from."""


def snapshot(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    average: Average,
    loss_scale: LossScale,
    examples: Sequence[int] = (),
) -> Snapshot:
    """Copies of all that training resumes from; every rank calls this. Without a process group there is one rank.

    Returns the model, with the mean of the ranks' BatchNorm statistics, by their `examples` if these are not equally
    many, which training does not read; and all else: the optimizer's state, and with a leading axis of ranks those
    statistics and the random state. Of weights that are averaged the model has the average, and the rest themselves.
    """
    arrays, state = {}, {"ranks.random": _gather(torch.get_rng_state(), device)}
    if device.type == "cuda":
        state["ranks.random_cuda"] = _gather(torch.cuda.get_rng_state(device), device)
    own = {name for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    for name, tensor in model.state_dict().items():
        arrays[name] = _to_numpy(tensor)
        if name in own:
            state[f"ranks.{name}"] = _gather(tensor, device)
            of_ranks = as_float32(state[f"ranks.{name}"])
            mean = np.average(of_ranks, axis=0, weights=examples) if examples else of_ranks.mean(0, of_ranks.dtype)
            arrays[name] = _to_numpy(torch.as_tensor(mean).to(tensor.dtype))
    for name, kept in average.kept.items():
        state[f"{TRAINED}{name}"], arrays[name] = arrays[name], _to_numpy(kept)
    state |= {f"{LOSS_SCALE}{name}": _to_numpy(value) for name, value in loss_scale.saved().items()}
    for index, entry in optimizer.state_dict()["state"].items():
        for key, value in entry.items():
            if value is not None:
                state[f"optimizer.{index}.{key}"] = _to_numpy(torch.as_tensor(value))
    return arrays, state


def restore(
    saved: Saved,
    rank: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    world_size: int,
    average: Average,
    loss_scale: LossScale,
) -> None:
    """Restores a checkpoint; with another number of ranks each starts from the mean of their statistics."""
    arrays: Mapping[str, npt.NDArray[Any]] = saved.model
    if len(saved.state["ranks.random"]) == world_size:
        mine = {name.removeprefix("ranks."): array[rank] for name, array in saved.state.items() if "ranks." in name}
        torch.set_rng_state(torch.from_numpy(mine.pop("random")))
        if device.type == "cuda" and "random_cuda" in mine:
            torch.cuda.set_rng_state(torch.from_numpy(mine.pop("random_cuda")), device)
        arrays = {**arrays, **{name: array for name, array in mine.items() if name in arrays}}
    arrays = {**arrays, **saved.part(TRAINED)}
    present = model.state_dict()
    model.load_state_dict({name: _split_as(present.get(name), _to_tensor(array)) for name, array in arrays.items()})
    for name, kept in average.kept.items():
        # Of a checkpoint without an average it begins here.
        kept.copy_(_split_as(kept, _to_tensor(saved.model[name])))
    loss_scale.restore({name: _to_tensor(array) for name, array in saved.part(LOSS_SCALE).items()})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    entries: dict[int, dict[str, Tensor]] = {}
    for name, array in saved.state.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            value, parameter = _to_tensor(array), parameters[int(index)]
            # A fused optimizer walks parameter and state in memory order: the same order in both.
            same = value.shape == parameter.shape
            like = torch.empty_like(parameter).copy_(_split_as(parameter, value)) if same else value
            entries.setdefault(int(index), {})[key] = like
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


def _gather(tensor: Tensor, device: torch.device) -> npt.NDArray[Any]:
    """A tensor of every rank: [ranks, …]."""
    if not dist.is_initialized():
        return _to_numpy(tensor[None])
    mine = tensor.detach().to(device)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return _to_numpy(torch.stack(gathered))


def _split_as(like: Tensor | None, value: Tensor) -> Tensor:
    """This rank's part of a value that all ranks have whole, where `like` is split over them."""
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """A copy on the host, its last axis the densest whatever the tensor's memory format.

    One that is split over the ranks is put together from all, for rank 0, which alone writes.
    """
    if isinstance(tensor, DTensor):
        whole = tensor.full_tensor()
        tensor = tensor.to_local() if dist.get_rank() else whole
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        # PyTorch gives NumPy no such type.
        return np.array(tensor.view(torch.int16).numpy(), order="C").view(BFLOAT16)
    return np.array(tensor.numpy(), order="C")


def _to_tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(as_float32(array))
