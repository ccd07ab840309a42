"""What stands out of a GPU, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.view.devices.view import gpu_views

CONDITIONS: list[tuple[str, dict[str, Any], str, str]] = [
    ("well", {}, "", ""),
    ("at its limit", {"temperature_c": 87.0}, "▲ hot", "warning"),
    ("hot without a limit", {"temperature_c": 85.0, "temperature_limit_c": None}, "▲ hot", "warning"),
    ("warm without a limit", {"temperature_c": 84.0, "temperature_limit_c": None}, "", ""),
    ("no temperature", {"temperature_c": None}, "", ""),
    ("slowed", {"throttle_reasons": ["too hot", "power brake"]}, "▲ slowed: too hot, power brake", "warning"),
    ("slowed and at its limit", {"throttle_reasons": ["power limit", "hot"]}, "▲ slowed: hot", "warning"),
    ("limited", {"throttle_reasons": ["power limit"]}, "▾ limited: power limit", "info"),
    ("full", {"memory_used_bytes": 138 * h.GIB}, "▲ memory full", "warning"),
    ("lost", {"problem": "GPU is lost\x1b[2J", "temperature_c": None}, "✖ GPU is lost", "error"),
    ("a new error", {"ecc_uncorrected": 1}, "✖ 1 ECC error", "error"),
    ("errors that were mended", {"ecc_corrected": 7}, "", ""),
    ("no ECC", {"ecc_corrected": None, "ecc_uncorrected": None}, "", ""),
    ("shared", {"processes": [GpuProcess(pid=7, user="grace", memory_bytes=5)]}, "! shared with grace", "warning"),
    ("shared with somebody", {"processes": [GpuProcess(pid=7)]}, "! shared with another process", "warning"),
    ("processes of a container", {"processes": [GpuProcess(memory_bytes=5)]}, "", ""),
    ("idle for a moment", {"utilization_percent": 0.0}, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words", "weight"), [case[1:] for case in CONDITIONS], ids=[c[0] for c in CONDITIONS]
)
def test_what_stands_out(changes: dict[str, Any], words: str, weight: str) -> None:
    condition = gpu_views(fold(d.sampled_last(changes)))[1].condition
    assert (condition.within(60) if condition else "") == words
    assert (condition.severity if condition else "") == weight


def test_errors_from_before_the_run_are_not_its_own() -> None:
    events = d.on_gpus(2, always={1: {"ecc_uncorrected": 40}})
    assert gpu_views(fold(events))[1].condition is None


def test_an_idle_gpu_stands_out_while_others_work() -> None:
    idle = {"utilization_percent": 0.0}
    views = gpu_views(fold(d.on_gpus(3, last={1: idle})))
    assert [view.condition and view.condition.text for view in views] == [None, "idle, others work", None]
    views = gpu_views(fold(d.on_gpus(2, last={0: idle, 1: idle})))
    assert [view.condition and (view.condition.text, view.condition.severity) for view in views] == [
        ("idle", "info")
    ] * 2
    over = fold([*d.on_gpus(2, last={1: idle}), h.ended("completed", 45.0, step=800)])
    assert gpu_views(over)[1].condition is None
