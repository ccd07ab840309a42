"""What the frameworks' allocators tell, from stand-ins for GPUs: the names of their figures, and what comes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import jax
import pytest
import torch

from tuiapp.trainers.contract.events import FrameworkMemory
from tuiapp.trainers.frameworks.jax import devices as jax_devices
from tuiapp.trainers.frameworks.torch import ranks as torch_ranks
from tuiapp.trainers.rank.reporter import Reporter

pytestmark = pytest.mark.nightly


def test_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory_stats(device: torch.device) -> dict[str, int]:
        figures = {"allocated_bytes.all.current": 10, "allocated_bytes.all.peak": 20, "reserved_bytes.all.current": 30}
        return {name: value + device.index for name, value in figures.items()}

    monkeypatch.setattr(torch.cuda, "memory_stats", memory_stats)
    report = cast(Reporter, SimpleNamespace(memory=None))
    torch_ranks.report_memory(report, {0: torch.device("cuda", 0), 3: torch.device("cuda", 1)})
    assert report.memory is not None
    first, second = report.memory()
    assert (first.rank, first.used_bytes, first.peak_bytes, first.reserved_bytes) == (0, 10, 20, 30)
    assert (second.rank, second.used_bytes, second.peak_bytes, second.reserved_bytes) == (3, 11, 21, 31)


def test_jax() -> None:
    figures = {"bytes_in_use": 1, "peak_bytes_in_use": 2, "pool_bytes": 3, "bytes_limit": 4, "num_allocs": 5}
    devices: Any = [SimpleNamespace(memory_stats=lambda: figures), SimpleNamespace(memory_stats=lambda: None)]
    [told] = jax_devices.framework_memory(devices)
    assert told == FrameworkMemory(
        rank=0, used_bytes=1, peak_bytes=2, reserved_bytes=3, limit_bytes=4, time=told.time, mono=told.mono
    )


def test_the_cpu_tells_nothing() -> None:
    assert jax_devices.framework_memory(jax.devices("cpu")) == []
