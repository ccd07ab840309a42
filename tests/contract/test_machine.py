"""What is found on a machine, with drivers that are missing, hang, crash or work: a real library behind pynvml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from trainers.contract.machine import Gpu, Machine, inspect_machine

INSPECT = """
import sys, msgspec
from trainers.contract import machine
machine.GPU_PROBE_TIMEOUT_S = float(sys.argv[1])
sys.stdout.buffer.write(msgspec.json.encode(machine.inspect_machine()))
"""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def inspect_with(tmp_path: Path, define: str) -> Machine:
    """What a process finds whose NVML is ours."""
    source = Path(__file__).with_name("fake_nvml.c")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", f"-D{define}", "-o", library, source], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, "1" if define == "HANG" else "30"],
        env=environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Machine)


def test_this_machine() -> None:
    machine = inspect_machine()
    assert machine.cpu_cores == len(os.sched_getaffinity(0))
    assert machine.memory_total_bytes == psutil.virtual_memory().total
    assert bool(machine.gpus) != bool(machine.gpu_problem)
    assert machine.max_cpu_ranks >= 8


@needs_compiler
def test_gpus(tmp_path: Path) -> None:
    machine = inspect_with(tmp_path, "WORKS")
    assert machine.driver == "999.01"
    assert machine.gpu_problem == ""
    common = {"memory_total_bytes": 80 << 30, "memory_used_bytes": 5 << 30, "utilization_percent": 42}
    assert machine.gpus == (
        Gpu(index=0, uuid="GPU-aaaa", name="Fake A", **common),
        Gpu(index=1, uuid="GPU-bbbb", name="Fake B", **common),
    )


@needs_compiler
def test_what_a_gpu_does_not_tell_is_not_zero(tmp_path: Path) -> None:
    gpu = inspect_with(tmp_path, "PARTIAL").gpus[0]
    assert gpu.utilization_percent is None
    assert gpu.memory_total_bytes == 80 << 30


@needs_compiler
@pytest.mark.parametrize(
    ("define", "problem"),
    [
        ("NO_DRIVER", "NVML: Driver Not Loaded"),
        ("CRASH", "the NVML probe died (exit code -11)"),
        ("HANG", "NVML did not answer within 1 s"),
    ],
)
def test_a_driver_that_does_not_work(tmp_path: Path, define: str, problem: str) -> None:
    began = time.monotonic()
    machine = inspect_with(tmp_path, define)
    assert machine.gpus == ()
    assert machine.gpu_problem == problem
    assert machine.cpu_cores > 0
    assert time.monotonic() - began < 30
