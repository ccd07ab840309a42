"""Batches on their way from the host to a GPU, which computes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import torch

from tuiapp.trainers.sources.arrays import StoredImages
from tuiapp.trainers.sources.datasets import Rows

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Buffer:
    memory: Tensor
    """Pinned, so that the GPU reads it by itself: [n, H, W, C] in the images' type."""
    copied: torch.cuda.Event
    """After the last copy from it."""


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
        """Images on the GPU, for the current stream; returns before they are there, and gives the buffer back."""
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
        """The buffer that was given back first, once it is copied; a new one if there is none, or it is too small."""
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
