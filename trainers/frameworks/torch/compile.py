"""Passes without the cost of Python's calls: torch.compile, ahead of the first step, and CUDA graphs."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.rank.reporter import Reporter

Called = TypeVar("Called", bound=Callable[..., Any])

CALLS_AHEAD = 3
"""With CUDA graphs the first call compiles and warms up, the second records, and from the third on it is replayed."""


def uses_cuda_graphs(config: RunConfig) -> bool:
    """Whether the compiled passes are replayed as CUDA graphs: one launch in place of hundreds.

    That is what a small model's step waits for. A replay overwrites what the one before gave: of ours nothing outlives
    its step, as the loss is computed outside of the model, and gradients are dropped before the next forward pass,
    unless they are accumulated. Of a user's own model nobody knows that. Graphs with collectives in them, as those of
    SyncBatchNorm, and their replay beside the all-reduce of several GPUs, are not used.
    """
    is_own = config.model.startswith(PY)
    alone = config.devices == 1 and config.accumulate == 1 and not config.sync_batch_norm
    return config.platform == "cuda" and alone and not is_own


def compile_model(model: Called, *, cuda_graphs: bool) -> Called:
    """Returns the model, or function, compiled on its first call; parameters and buffers stay those of the original."""
    # Dropout draws as it does uncompiled. Options exclude mode="reduce-overhead", which sets just the second one.
    options: dict[str, str | int | bool | Callable[..., Any]] = {
        "fallback_random": True,
        "triton.cudagraphs": cuda_graphs,
    }
    return cast(Called, torch.compile(model, dynamic=False, options=options))


def compile_ahead(report: Reporter, model: nn.Module, device: torch.device, loss: Callable[[], Tensor]) -> None:
    """Compiles forward and backward pass, so that the first step takes no longer than the others.

    Both compile when they first run: they do so here, on a step's `loss`, and the changes to gradients and statistics
    of the uncompiled `model` are undone. Raises RuntimeError if there is no compiler for torch.compile's output.
    """
    report.phase("compiling")
    try:
        with unchanged_buffers(model), torch.random.fork_rng([device] if device.type == "cuda" else []):
            for _ in range(CALLS_AHEAD if device.type == "cuda" else 1):
                model.zero_grad()
                loss().backward()
    except RuntimeError as error:
        if device.type == "cuda" and not os.path.exists(Path(sysconfig.get_path("include"), "Python.h")):
            # Triton compiles a module of Python's for each kernel.
            message = "compile = true needs Python's headers (python3-dev, or python3-devel), and there is no Python.h"
            raise RuntimeError(f"{message}: install them, or set compile = false.") from error
        # The message of Inductor on the CPU ("No working C++ compiler found"), and of Triton on GPUs.
        if "C++ compiler" not in str(error) and "C compiler" not in str(error):
            raise
        message = "compile = true needs a C and C++ compiler (gcc and g++, or what CC and CXX name), and none was found"
        raise RuntimeError(f"{message}: install one, or set compile = false.") from error
    model.zero_grad()


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Gives BatchNorm's statistics, and other buffers, back the values that they had before the block."""
    buffers = [buffer.clone() for buffer in model.buffers()]
    yield
    with torch.no_grad():
        for buffer, before in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(before)


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
        """Runs passes of which nothing is left: on a stream of their own, as a capture must not wait for another."""
        steps, apart = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        with unchanged_buffers(self._model):
            apart.wait_stream(steps)
            with torch.random.fork_rng([device]), torch.cuda.stream(apart):
                for _ in range(WARM_UP):
                    self._gradients(self._x, self._y)
            steps.wait_stream(apart)
