"""CUDA graphs without torch.compile: a step's passes by one launch in place of hundreds, which small models wait for.

Forward pass, loss and backward pass are captured, and not the optimizer, as PyTorch advises where a loss is scaled: so
the learning rate stays a number, and every optimizer, clipping and float16 work as they do without.
Source: https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

WARM_UP = 3
"""Passes before the capture, in which cuDNN chooses its algorithms, and libraries take their memory."""


class Graph:
    """`gradients` of batches of one shape, as a CUDA graph from the first call on.

    `gradients` drops a model's gradients, makes new ones of a batch and returns the loss. The graph leaves them in
    memory of its own, which the next replay overwrites: nobody may drop them, and what is to outlive the step is to be
    copied, as the loss is. Dropout draws what it would draw without: a replay goes on in the generator's sequence.
    """

    def __init__(self, model: nn.Module, gradients: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._model, self._gradients = model, gradients
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        if self._graph is None:
            self._x, self._y = x.clone(), y.clone()
            self._warm_up(x.device)
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may meanwhile ask NCCL's events, and copy batches.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._loss = self._gradients(self._x, self._y)
        self._x.copy_(x)
        self._y.copy_(y)
        self._graph.replay()
        return self._loss.clone()

    def _warm_up(self, device: torch.device) -> None:
        """Passes of which nothing is left: on a stream of their own, as what is captured must not wait for another."""
        buffers = [buffer.clone() for buffer in self._model.buffers()]
        steps, apart = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        apart.wait_stream(steps)
        with torch.random.fork_rng([device]), torch.cuda.stream(apart):
            for _ in range(WARM_UP):
                self._gradients(self._x, self._y)
        steps.wait_stream(apart)
        with torch.no_grad():
            for buffer, before in zip(self._model.buffers(), buffers, strict=True):
                buffer.copy_(before)
