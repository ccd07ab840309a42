"""The checklist of GPUs: what it says of each, and that looking again keeps what was chosen."""

from __future__ import annotations

import msgspec
import pytest

from tests.kit.configure_app import Start, field, screen, until, words
from tuiapp.trainers.config.machine import Gpu, GpuProcess, Machine
from tuiapp.widgets.config_form import ConfigForm
from tuiapp.widgets.gpu_checklist import GpuChecklist, describe_gpus, details

GIB = 1 << 30


def gpu(index: int, used_bytes: int = 0, *processes: GpuProcess, **facts: object) -> Gpu:
    known = Gpu(
        index=index,
        uuid=f"GPU-{index:04}",
        name="NVIDIA H200",
        memory_total_bytes=139 * GIB,
        memory_used_bytes=used_bytes,
        utilization_percent=7,
        processes=processes,
    )
    return msgspec.structs.replace(known, **facts)


def machine_of(*gpus: Gpu) -> Machine:
    return Machine(cpu_cores=8, memory_total_bytes=64 * GIB, memory_available_bytes=60 * GIB, gpus=gpus, driver="580")


def test_a_line_says_all_that_is_known_of_a_gpu() -> None:
    ada = GpuProcess(pid=7, user="ada", name="python", memory_bytes=12 * GIB)
    hidden = GpuProcess(memory_bytes=GIB)
    used, unused, mute = map(
        str,
        describe_gpus(
            [
                gpu(0, 13 * GIB, ada, ada, hidden),
                gpu(1),
                gpu(2, memory_used_bytes=None, utilization_percent=None, processes=None, name="a\x1b[31mb"),
            ],
            frozenset({"GPU-0001"}),
        ),
    )
    assert used == "[ ]  0  NVIDIA H200   126/139 GiB free    7 % busy  ada, others"
    assert unused == "[x]  1  NVIDIA H200   139/139 GiB free    7 % busy  unused"
    # What it does not tell is neither 0 nor "unused".
    assert mute.split() == ["[", "]", "2", "ab"]
    assert details(gpu(0, 13 * GIB, ada, ada, hidden)) == (
        "7 % busy · ada 2 processes 24.0 GiB, others 1 process 1.00 GiB · GPU-0000"
    )


def test_a_gpu_with_the_systems_memory_says_so() -> None:
    spark = gpu(0, 20 * GIB, has_system_memory=True)
    assert "119/139 GiB free (system)" in str(describe_gpus([spark], frozenset())[0])
    assert details(spark).startswith("the system's memory · ")


@pytest.mark.nightly
async def test_looking_again_keeps_what_was_chosen_and_where_one_is(start: Start) -> None:
    async with start(machine=machine_of(gpu(0), gpu(1))) as pilot:
        checklist = screen(pilot).query_one(GpuChecklist)
        checklist.focus()
        assert str(checklist.get_option_at_index(0).prompt) == "[x] idle ones · now 0, 1"
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        assert field(pilot, "device_ids").text == "1"
        assert str(checklist.get_option_at_index(0).prompt).startswith("[ ]")
        screen(pilot).call_later(screen(pilot).take_machine, machine_of(gpu(0), gpu(1, 100 * GIB)))
        await until(pilot, lambda: "39.0/139 GiB" in str(checklist.get_option_at_index(2).prompt))
        assert checklist.has_focus
        assert "GPU-0001" in str(screen(pilot).query_one(ConfigForm).border_subtitle)
        assert checklist.highlighted == 2
        assert str(checklist.get_option_at_index(2).prompt).startswith("[x]")
        assert str(checklist.get_option_at_index(0).prompt) == "[ ] idle ones · now 0"
        # Others than before: a list of its own.
        screen(pilot).call_later(screen(pilot).take_machine, machine_of(gpu(1)))
        await until(pilot, lambda: screen(pilot).query_one(GpuChecklist).option_count == 2)
        alone = screen(pilot).query_one(GpuChecklist)
        assert str(alone.get_option_at_index(1).prompt).startswith("[x]")
        # Back to idle ones.
        alone.focus()
        await pilot.press("home", "enter")
        await until(pilot, lambda: field(pilot, "device_ids").text == "")
        assert str(alone.get_option_at_index(0).prompt) == "[x] idle ones · now 1"
        assert str(alone.get_option_at_index(1).prompt).startswith("[ ]")


async def test_a_key_looks_at_the_devices_again(start: Start) -> None:
    async with start() as pilot:
        assert screen(pilot)._machine is not None
        known = screen(pilot)._machine
        await pilot.press("f6")
        await until(pilot, lambda: screen(pilot)._machine is not known)
        assert "in all" in words(pilot, "#facts")
