"""A GPU that somebody else uses, too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.gpu.box import Box
from tests.bench.gpu.findings import SkipCheck
from tests.kit.harness import launched
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.launch import LaunchError

HOLD = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
"""Keeps so many bytes of the GPU until its input ends."""


def half_held(box: Box) -> None:
    with holding(box, box.gpu.total_bytes() // 2):
        for backend in box.able("jax-sharding", "torch-ddp"):
            config = box.config(backend=backend, max_steps=40, checkpoint_every=0)
            try:
                with box.find.part(backend), launched(config, box.runs_dir) as run:
                    end = run.end()
                    why = "; ".join(failed.error for failed in run.of(RankFailed)) or end.reason
                    box.find.holds(f"{backend} trains beside it", end.status == "completed", why)
            except (ConfigError, LaunchError) as error:
                # It is refused for this reason, not for another.
                box.find.holds(f"{backend} is refused before the launch", re.search("memory|GiB", str(error)), error)


@contextmanager
def holding(box: Box, size: int) -> Iterator[None]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": box.gpu.uuid}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(size)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        if process.stdout.readline() != "held\n":
            raise SkipCheck("PyTorch cannot hold half of this GPU's memory: see this check's log")
        yield
    finally:
        process.kill()
        process.wait()
