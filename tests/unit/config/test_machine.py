"""What is found on a machine, whatever its drivers do, and what control groups leave of its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import psutil
import pytest

from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler
from tuiapp.trainers.config import machine as config_machine
from tuiapp.trainers.config.machine import Machine, inspect_machine, memory_groups, memory_limit
from tuiapp.trainers.telemetry import probe
from tuiapp.trainers.telemetry.host import HOST_PID_NAMESPACE
from tuiapp.trainers.telemetry.nvidia import NvmlGpu
from tuiapp.trainers.telemetry.source import SourceError

INSPECT = """
import sys, msgspec
from tuiapp.trainers.config import machine
machine.GPU_PROBE_TIMEOUT_S = float(sys.argv[1])
sys.stdout.buffer.write(msgspec.json.encode(machine.inspect_machine()))
"""
BOTH = gpu("GPU-aaaa", "Fake A") + gpu("GPU-bbbb", "Fake B")


def inspect_with(tmp_path: Path, script: str, timeout_s: float = 30) -> Machine:
    """What a process finds whose NVML is ours."""
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, str(timeout_s)],
        env=FakeNvml(tmp_path, script).run_environment(),
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
    machine = inspect_with(tmp_path, BOTH)
    assert machine.driver == "999.01"
    assert machine.gpu_problem == ""
    assert [(found.index, found.uuid, found.name) for found in machine.gpus] == [
        (0, "GPU-aaaa", "Fake A"),
        (1, "GPU-bbbb", "Fake B"),
    ]
    for found in machine.gpus:
        assert (found.memory_total_bytes, found.memory_used_bytes, found.utilization_percent) == (80 << 30, 5 << 30, 42)
        assert found.processes == ()


@pytest.mark.nightly
@needs_compiler
def test_who_uses_a_gpu(tmp_path: Path) -> None:
    mine = f"process {os.getpid()} {3 << 30}"
    used, mute = inspect_with(
        tmp_path, gpu("GPU-aaaa", "Fake A", mine) + gpu("GPU-bbbb", "Fake B", no_processes=None)
    ).gpus
    # The second does not tell: that is no empty list.
    assert mute.processes is None
    (process,) = used.processes or ()
    assert process.memory_bytes == 3 << 30
    if os.stat("/proc/self/ns/pid").st_ino == HOST_PID_NAMESPACE:
        assert process.user == psutil.Process().username()
    else:
        # In a container the number would be the host's.
        assert (process.pid, process.user) == (None, "")


def test_a_gpu_between_two_steps_is_as_busy_as_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest of several readings counts; one that fails is left out."""
    monkeypatch.setattr(probe, "LOOK_S", 0.0)

    class Reading:
        def __init__(self, *loads: int | None) -> None:
            self._loads = [*loads]

        def load(self, now: float) -> int | None:
            if not self._loads:
                raise SourceError("GPU is lost")
            return self._loads.pop(0)

    gpus = {"GPU-a": Reading(0, 91, 3, None), "GPU-b": Reading(0), "GPU-c": Reading(None, None)}
    assert probe._loads(cast("dict[str, NvmlGpu]", gpus)) == {"GPU-a": 91, "GPU-b": 0}


@pytest.mark.nightly
@needs_compiler
def test_a_gpu_that_is_lost_does_not_hide_the_others(tmp_path: Path) -> None:
    lost = gpu("GPU-aaaa", "Fake A", "fault * return 15")
    machine = inspect_with(tmp_path, lost + gpu("GPU-bbbb", "Fake B"))
    assert [(found.index, found.uuid) for found in machine.gpus] == [(1, "GPU-bbbb")]
    assert machine.gpu_problem == ""
    assert inspect_with(tmp_path, lost).gpu_problem == "NVML: GPU is lost"


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("return 9", "NVML: Driver Not Loaded"),
        ("crash", "the NVML probe died (exit code -11)"),
        ("hang 600", "NVML did not answer within 1 s"),
    ],
)
def test_a_driver_that_does_not_work(tmp_path: Path, fault: str, problem: str) -> None:
    machine = inspect_with(tmp_path, f"fault nvmlInitWithFlags {fault}\n", 1 if "hang" in fault else 30)
    assert machine.gpus == ()
    assert machine.gpu_problem == machine.gpu_trouble == problem
    assert machine.cpu_cores > 0


def test_a_driver_without_its_library_is_no_machine_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    """As in a container that got the devices alone."""

    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", no_library)
    monkeypatch.setattr(config_machine, "DRIVER_FILES", ())
    assert machine.gpu_trouble == inspect_machine().gpu_trouble == ""
    monkeypatch.setattr(config_machine, "DRIVER_FILES", (tmp_path,))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in inspect_machine().gpu_trouble


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def write(group: Path, **files: object) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (group / name.replace("__", ".")).write_text(f"{content}\n")


def test_the_least_limit_of_a_group_and_those_above_it(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/user.slice/job\n")
    root = tmp_path / "fs"
    write(root / "user.slice", memory__max=1000, memory__current=700, memory__stat="anon 500\ninactive_file 90")
    write(root / "user.slice" / "job", memory__max="max", memory__current=300, memory__stat="anon 300")
    groups = memory_groups(own, root)
    assert groups == [root / "user.slice" / "job", root / "user.slice", root]
    assert memory_limit(groups) == (1000, 390)
    write(root / "user.slice" / "job", memory__max=400)
    assert memory_limit(groups) == (400, 100)


def test_the_first_version_in_a_container(tmp_path: Path, own: Path) -> None:
    own.write_text("5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n1:name=systemd:/docker/ab\n")
    root = tmp_path / "fs"
    stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20"
    # What is mounted is the container's own group.
    write(root / "memory", memory__limit_in_bytes=1000, memory__usage_in_bytes=600, memory__stat=stat)
    groups = memory_groups(own, root)
    assert groups == [root / "memory" / "docker" / "ab", root / "memory" / "docker", root / "memory"]
    assert memory_limit(groups) == (1000, 450)


def test_no_limit(tmp_path: Path, own: Path) -> None:
    assert memory_limit(memory_groups(own, tmp_path)) is None
    own.write_text("0::/\n")
    write(tmp_path, memory__max="max", memory__current=1)
    assert memory_limit(memory_groups(own, tmp_path)) is None
