"""Copies between the host and a GPU, which computes meanwhile; and batches that are augmented on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor

from tuiapp.trainers.frameworks.torch.losses import by_type, flatten
from tuiapp.trainers.rank.tensor_files import BFLOAT16
from tuiapp.trainers.sources.arrays import StoredImages
from tuiapp.trainers.sources.augmentation import PAD
from tuiapp.trainers.sources.datasets import Rows


@dataclass(frozen=True, slots=True)
class Buffer:
    memory: Tensor
    """Memory of the host, pinned so that the GPU reads it by itself: [n, H, W, C] in the images' type."""
    copied: torch.cuda.Event
    """An event after the last copy from the memory."""


@dataclass(frozen=True, slots=True)
class Filled:
    buffer: Buffer
    images: Tensor
    """The batch, a part of the buffer's memory."""


class Copies:
    """Reads images into pinned memory, which is reused, and copies them on a stream of their own.

    On the stream of the steps a copy would wait for all steps in flight. There are as many buffers as batches that were
    read ahead, and one or two that are copied from.
    """

    def __init__(self, images: StoredImages, device: torch.device) -> None:
        self._images, self._device = images, device
        self._stream = torch.cuda.Stream(device)
        self._free: SimpleQueue[Buffer] = SimpleQueue()

    def read(self, rows: Rows | slice) -> Filled:
        """Reads images into a buffer; any thread may. Raises OSError."""
        count = len(range(*rows.indices(len(self._images)))) if isinstance(rows, slice) else len(rows)
        buffer = self._take(count)
        images = buffer.memory[:count]
        self._images.read_into(rows, images.numpy())
        return Filled(buffer, images)

    def move(self, filled: Filled) -> Tensor:
        """Returns images on the GPU, for the current stream, before they are there, and gives the buffer back."""
        steps = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            moved = filled.images.to(self._device, non_blocking=True)
            filled.buffer.copied.record(self._stream)
        steps.wait_event(filled.buffer.copied)
        # Its memory belongs to the copies' stream: the next copy must not get it before this step has used it.
        moved.record_stream(steps)
        self._free.put(filled.buffer)
        return moved

    def _take(self, count: int) -> Buffer:
        """Returns the buffer given back first, once it is copied; a new one if there is none, or it is too small."""
        try:
            buffer = self._free.get_nowait()
        except Empty:
            return self._create(count)
        if len(buffer.memory) < count:
            return self._create(count)
        buffer.copied.synchronize()
        return buffer

    def _create(self, count: int) -> Buffer:
        shape, dtype = (count, *self._images.shape[1:]), torch.from_numpy(self._images[:0]).dtype
        # Threads begin on the first GPU, where another rank may compute.
        with torch.cuda.device(self._device):
            memory = torch.empty(shape, dtype=dtype, pin_memory=True)
        return Buffer(memory, torch.cuda.Event(blocking=True))


Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


def to_host(tensors: Mapping[str, Tensor], copies: torch.cuda.Stream | None) -> Arrays:
    """Copies of tensors as they are now, the last axis the densest whatever the tensor's memory format.

    Those of a GPU are made on the stream `copies` while the GPU goes on with its steps: nothing may read them before
    that is synchronized. Tensors that are split over the ranks are waited for.
    """
    if copies is None:
        return {name: to_numpy(tensor) for name, tensor in tensors.items()}
    staged = {name: tensor for name, tensor in tensors.items() if tensor.is_cuda and not isinstance(tensor, DTensor)}
    return stage(staged, copies) | {name: to_numpy(tensor) for name, tensor in tensors.items() if name not in staged}


def stage(tensors: Mapping[str, Tensor], copies: torch.cuda.Stream) -> Arrays:
    """Returns `to_host` of whole tensors of a GPU.

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
    """Returns the arrays that were joined, [values], or with a leading axis; in the same memory where that goes."""
    ends = np.cumsum([tensor.numel() for tensor in tensors.values()])[:-1]
    parts = zip(tensors.items(), np.split(joined, ends, axis=-1), strict=True)
    return {name: part.reshape((*joined.shape[:-1], *tensor.shape)) for (name, tensor), part in parts}


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """Returns a copy on the host, which is waited for.

    One that is split over the ranks is put together from all, for rank 0, which alone writes.
    """
    if isinstance(tensor, DTensor):
        full = tensor.full_tensor()
        tensor = tensor.to_local() if dist.get_rank() else full
    return np.array(_as_array(tensor.detach().cpu()), order="C")


def _as_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Returns an array over the same memory of the host."""
    # PyTorch gives NumPy no bfloat16.
    return tensor.view(torch.int16).numpy().view(BFLOAT16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def change(x: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
    """Returns cropped and flipped images: of [N, H, W, C], as they are stored, to the same.

    They lie in memory as those given, which decides the kernels of convolutions.
    """
    height, width = x.shape[1:3]
    made = torch.empty_like(x)
    if "top" in draws:
        windows = F.pad(x, (0, 0, *[PAD] * 4)).unfold(1, height, 1).unfold(2, width, 1)
        places = torch.arange(len(x), device=x.device), draws["top"].long(), draws["left"].long()
        x = windows[places].permute(0, 2, 3, 1)
    return torch.where(draws["flip"].view(-1, 1, 1, 1), x.flip(2), x, out=made)


def mix(x: Tensor, y: Tensor, weight: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Returns mixtures of images and of labels: [N, …] and [N, classes].

    The images are float32 [2 N, …], each before its partner, the labels int64 [N, 2].

    The cross entropy with mixed labels is the mixture of those with both: λ·CE(y₁) + (1 − λ)·CE(y₂).
    """
    by_image = weight.view(-1, *[1] * (x.dim() - 1))
    images = torch.lerp(x[1::2], x[::2], by_image, out=torch.empty_like(x[: len(y)]))
    first, partner = F.one_hot(y, classes).float().unbind(1)
    return images, torch.lerp(partner, first, weight[:, None])
