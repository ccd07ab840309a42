"""Which GPUs CUDA_VISIBLE_DEVICES leaves, which of them are idle, and which a run gets."""

from __future__ import annotations

import msgspec
import pytest

from tuiapp.trainers.config.files import make_private
from tuiapp.trainers.config.gpu_choice import Use, find, most, pick, use_of
from tuiapp.trainers.config.machine import Gpu, GpuProcess, Lease, choose
from tuiapp.trainers.config.settings import settings_path

GIB = 1 << 30
PRESENT: dict[str, list[str]] = {"GPU-aa11": [], "GPU-aa22": [], "GPU-bb33": [], "GPU-cc44": ["MIG-p1", "MIG-p2"]}
ADA = (GpuProcess(pid=7, user="ada", name="python", memory_bytes=70 * GIB),)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("", []),
        ("all", ["GPU-aa11", "GPU-aa22", "GPU-bb33", "MIG-p1", "MIG-p2"]),
        ("0", ["GPU-aa11"]),
        ("2,0", ["GPU-bb33", "GPU-aa11"]),
        ("GPU-aa22", ["GPU-aa22"]),
        ("GPU-b", ["GPU-bb33"]),
        ("GPU-aa22, GPU-bb33", ["GPU-aa22", "GPU-bb33"]),
        # CUDA ignores all that follows what names nothing, or not one alone.
        ("0,7,1", ["GPU-aa11"]),
        ("GPU-aa", []),
        ("-1,0", []),
        ("1,1", ["GPU-aa22"]),
        ("MIG-p2", ["MIG-p2"]),
        ("MIG-p2,MIG-p1", ["MIG-p2", "MIG-p1"]),
        # Of a GPU with instances they are all that there is to use.
        ("3,0", ["MIG-p1", "MIG-p2", "GPU-aa11"]),
        ("nonsense", []),
    ],
)
def test_cuda_visible_devices(wanted: str, chosen: list[str]) -> None:
    assert choose(wanted, PRESENT) == chosen


def gpu(
    index: int,
    used: int = 0,
    percent: int | None = 0,
    processes: tuple[GpuProcess, ...] | None = (),
    part: int | None = None,
) -> Gpu:
    return Gpu(
        index=index,
        part=part,
        uuid=f"GPU-{index}{'' if part is None else f'-{part}'}",
        name="NVIDIA H100",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=used * GIB,
        utilization_percent=percent,
        processes=processes,
    )


LEASE = Lease(gpu="GPU-0", run="20261128T100000-script-train-3fa1", user="ada", since=0.0)
DESKTOP = (GpuProcess(pid=8, user="ada", name="Xorg", memory_bytes=GIB, draws=True),)


@pytest.mark.parametrize(
    ("one", "use"),
    [
        (gpu(0), Use.IDLE),
        (gpu(0, 79, 99, ADA), Use.IN_USE),
        # Held, and not worked on at the moment.
        (gpu(0, 70, 0, ADA), Use.IN_USE),
        (gpu(0, 7, 0, ADA), Use.SHARED),
        # In a container nobody is seen.
        (gpu(0, 70, 0, ()), Use.IN_USE),
        (gpu(0, 1, 91, ()), Use.IN_USE),
        (gpu(0, 1, 80, None), Use.IN_USE),
        (gpu(0, 1, 80, ADA), Use.IN_USE),
        (gpu(0, 1, 3, ADA), Use.SHARED),
        (gpu(0, 1, 3, DESKTOP), Use.IDLE),
        # Of a run that has not got as far as its GPU.
        (msgspec.structs.replace(gpu(0), leases=(LEASE,)), Use.IN_USE),
        (Gpu(index=0, uuid="GPU-mute", name="Mute"), Use.IDLE),
        # What the system's processes hold says nothing of it.
        (msgspec.structs.replace(gpu(0, 30), has_system_memory=True), Use.IDLE),
        (msgspec.structs.replace(gpu(0, 30, 0, ADA), has_system_memory=True), Use.SHARED),
    ],
)
def test_what_others_leave(one: Gpu, use: Use) -> None:
    assert use_of(one) == use


def test_the_users_limits_hold_for_every_choice() -> None:
    gpus = [gpu(0, 30, 3, ()), gpu(1, 1, 30, ()), gpu(2, 1, 60, ())]
    assert [use_of(one) for one in gpus] == [Use.IN_USE] * 3
    make_private(settings_path().parent)
    settings_path().write_text("idle_memory = 50\nidle_load = 40\n")
    assert [use_of(one) for one in gpus] == [Use.IDLE, Use.IDLE, Use.IN_USE]
    assert most(gpus) == 2
    assert picked(gpus, 2) == ["0", "1"]
    settings_path().unlink()
    assert use_of(gpus[0]) == Use.IN_USE


def test_an_empty_gpu_comes_before_one_with_processes_of_others() -> None:
    gpus = [gpu(0, 7, 0, ADA), gpu(1)]
    assert picked(gpus, 1) == ["1"]
    assert most(gpus) == 1


def picked(gpus: list[Gpu], count: int) -> list[str]:
    return [one.number for one in pick(gpus, count)]


def test_idle_ones_come_first_and_in_order() -> None:
    gpus = [gpu(0, 79, 99, ADA), gpu(1), gpu(2, 40, 50, ADA), gpu(3)]
    assert [picked(gpus, count) for count in (1, 2, 3, 4)] == [["1"], ["1", "3"], ["1", "2", "3"], ["0", "1", "2", "3"]]
    assert most(gpus) == 2
    # Twice the same, whatever the readings of busy ones.
    assert picked([gpu(0), gpu(1)], 1) == ["0"]
    # All busy: the emptiest, and without a count all.
    assert picked([gpu(0, 79, 99, ADA), gpu(1, 20, 99, ADA)], 1) == ["1"]
    assert most([gpu(0, 79, 99, ADA), gpu(1, 20, 99, ADA)]) == 2
    # In the order of CUDA_VISIBLE_DEVICES, not of the numbers.
    assert picked([gpu(3), gpu(1)], 2) == ["3", "1"]
    assert len(pick(gpus, 5)) == 4
    assert most([]) == 0


def test_mig_instances_are_chosen_alone() -> None:
    parts = [gpu(1, part=0), gpu(1, 60, part=1), gpu(1, part=2)]
    assert (picked(parts, 1), picked(parts, 2), most(parts)) == (["1:0"], [], 1)
    assert picked(parts[1:], 1) == ["1:2"]
    # Whole GPUs before parts where a run does not say how many.
    assert most([*parts, gpu(2), gpu(3)]) == 2
    assert picked([*parts, gpu(2), gpu(3)], 2) == ["2", "3"]
    found = find("1:2", parts)
    assert found is parts[2]
    assert find(found.uuid, parts) is found
    assert find("1", parts) is None
