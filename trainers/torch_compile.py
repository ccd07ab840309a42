"""torch.compile, ahead of the first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from trainers.runtime.reporter import Reporter


def compile_model(model: nn.Module) -> nn.Module:
    """The same model, compiled on its first call; its parameters and buffers stay those of the original."""
    # Dropout draws as it does uncompiled.
    return cast(nn.Module, torch.compile(model, dynamic=False, options={"fallback_random": True}))


def compile_ahead(report: Reporter, model: nn.Module, device: torch.device, loss: Callable[[], Tensor]) -> None:
    """Compiles forward and backward pass, so that the first step takes no longer than the others.

    Both compile when they first run: they do so here, on a step's `loss`, and the changes to gradients and statistics
    of the uncompiled `model` are undone. Raises RuntimeError if there is no compiler for torch.compile's output.
    """
    report.phase("compiling")
    buffers = [buffer.clone() for buffer in model.buffers()]
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            loss().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        # The message of Inductor on the CPU ("No working C++ compiler found"), and of Triton on GPUs.
        if "C++ compiler" not in str(error) and "C compiler" not in str(error):
            raise
        message = "compile = true needs a C and C++ compiler (gcc and g++, or what CC and CXX name), and none was found"
        raise RuntimeError(f"{message}: install one, or set compile = false.") from error
    model.zero_grad()
    with torch.no_grad():
        for buffer, before in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(before)
