"""Copies of tensors on the host, as arrays for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from tuiapp.trainers.frameworks.torch.flat import by_type, flatten
from tuiapp.trainers.rank.tensor_files import BFLOAT16

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


def to_host(tensors: Mapping[str, Tensor], copies: torch.cuda.Stream | None) -> Arrays:
    """Copies of tensors as they are now, the last axis the densest whatever the tensor's memory format.

    Those of a GPU are made on the stream `copies` while the GPU goes on with its steps: nothing may read them before
    that is synchronized. Tensors that are split over the ranks are waited for.
    """
    if copies is None:
        return {name: to_numpy(tensor) for name, tensor in tensors.items()}
    staged = {name: one for name, one in tensors.items() if one.is_cuda and not isinstance(one, DTensor)}
    return stage(staged, copies) | {name: to_numpy(one) for name, one in tensors.items() if name not in staged}


def stage(tensors: Mapping[str, Tensor], copies: torch.cuda.Stream) -> Arrays:
    """`to_host` of whole tensors of a GPU.

    They are joined there, in order with the steps, so that the next update may change them at once. From there a single
    copy fills pinned memory, which PyTorch keeps when it is let go, for the next.
    """
    steps = torch.cuda.current_stream(copies.device)
    arrays: Arrays = {}
    for same in by_type(tensors):
        joined = flatten(same.values())
        copies.wait_stream(steps)
        with torch.cuda.stream(copies):
            # Without waiting it is pinned memory.
            host = joined.to("cpu", non_blocking=True)
        # The steps must not get the memory before it is copied.
        joined.record_stream(copies)
        arrays |= split_up(_as_array(host), same)
    return arrays


def split_up(joined: npt.NDArray[Any], tensors: Mapping[str, Tensor]) -> Arrays:
    """The arrays that were joined, [values], or with a leading axis before that; in the same memory where it goes."""
    ends = np.cumsum([tensor.numel() for tensor in tensors.values()])[:-1]
    parts = zip(tensors.items(), np.split(joined, ends, axis=-1), strict=True)
    return {name: part.reshape((*joined.shape[:-1], *tensor.shape)) for (name, tensor), part in parts}


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """A copy on the host, which is waited for.

    One that is split over the ranks is put together from all, for rank 0, which alone writes.
    """
    if isinstance(tensor, DTensor):
        whole = tensor.full_tensor()
        tensor = tensor.to_local() if dist.get_rank() else whole
    return np.array(_as_array(tensor.detach().cpu()), order="C")


def _as_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Returns an array over the same memory of the host."""
    # PyTorch gives NumPy no bfloat16.
    return tensor.view(torch.int16).numpy().view(BFLOAT16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
