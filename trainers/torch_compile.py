"""torch.compile, ahead of the first step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import cast

import torch
from platformdirs import user_cache_path
from torch import Tensor, nn

from trainers.runtime.reporter import Reporter

KEPT_BYTES = 1 << 30
"""Size of torch.compile's cache kept for later runs."""

IN_USE_S = 24 * 3600.0
"""A file written or read within this time may be in use by a run."""


def limit_kept(directory: Path, kept_bytes: int = KEPT_BYTES) -> None:
    """Deletes the least recently used files of torch.compile's cache `directory` beyond `kept_bytes`.

    Inductor has no limit of its own, and recreates what is gone. Files in use recently stay in any case.
    """
    found = []
    for path in directory.rglob("*"):
        try:
            facts = path.lstat()
        except OSError:
            continue  # another run's, gone meanwhile
        if path.is_file():
            found.append((max(facts.st_mtime, facts.st_atime), facts.st_size, path))
    total = sum(size for _, size, _ in found)
    for used, size, path in sorted(found, key=lambda item: item[:2]):
        if total <= kept_bytes or used > time() - IN_USE_S:
            return
        path.unlink(missing_ok=True)
        total -= size


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
    if os.environ.get("RANK", "0") == "0":
        # A cache elsewhere, by TORCHINDUCTOR_CACHE_DIR, is its owner's.
        limit_kept(user_cache_path("tuiapp") / "torch")
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
