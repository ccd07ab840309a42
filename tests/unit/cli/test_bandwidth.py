"""`tuiapp devices --bandwidth`: real all-reduces between CPU ranks, and what a driver says of its links."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.kit.command_line import Command, as_process
from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler
from tuiapp.trainers.config.machine import Link
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.bandwidth import Answer, Asked, Begins, LeftOut, Links, Measured
from tuiapp.trainers.contract.orphans import TOKEN, find_orphans, tagged_processes
from tuiapp.trainers.rank.bandwidth import SIZES, measure
from tuiapp.verbs.bandwidth import _Found

MEASURE = [sys.executable, "-m", "tuiapp", "devices", "--bandwidth", "--platform", "cpu", "--json"]


def asked(devices: int, platform: str = "cuda") -> Asked:
    config = RunConfig(platform=platform, devices=devices, device_ids=tuple(f"GPU-{n}" for n in range(devices)))
    return Asked(plan=make_plan(config), token="t", most_bytes=1, seconds=1)


def of_kind(found: list[Answer], kind: type[Any]) -> list[int]:
    return [one.bytes for one in found if isinstance(one, kind)]


def test_sizes_grow_as_far_as_time_allows() -> None:
    """On a machine of 1 GB/s that takes 10 µs for anything."""
    told: list[Answer] = []

    def time_of(size: int, calls: int) -> float:
        return calls * (1e-5 + size / 1e9)

    measure("gloo", time_of, told.append, 1 << 40, 60)
    assert of_kind(told, Measured) == of_kind(told, Begins) == list(SIZES)
    assert (SIZES[0], SIZES[-1]) == (1 << 10, 1 << 30)
    for one in told:
        if isinstance(one, Measured):
            assert one.seconds == pytest.approx(1e-5 + one.bytes / 1e9)
            assert one.calls == 1000 or 0.25 < one.calls * one.seconds <= 0.5 or one.calls == 1
    told.clear()
    measure("gloo", time_of, told.append, 1 << 40, 4)
    assert of_kind(told, LeftOut) == [SIZES[len(of_kind(told, Measured))]]
    # A size more might take twelve times as long as the last.
    assert sum(one.calls * one.seconds for one in told if isinstance(one, Measured)) < 4
    told.clear()
    measure("gloo", time_of, told.append, 5 << 10, 60)
    assert (of_kind(told, Measured), of_kind(told, LeftOut)) == ([1 << 10, 4 << 10], [16 << 10])


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    for devices, factor in ((2, 1.0), (4, 1.5), (8, 1.75)):
        found = _Found(asked(devices))
        assert found.rates(Measured(bytes=1000, calls=1, seconds=1e-6)) == pytest.approx((1e9, factor * 1e9))


def test_what_the_slowest_links_can_do_is_the_measure() -> None:
    found = _Found(asked(2))
    fast = Link(
        uuid="GPU-0", index=0, name="H200", nvlinks=18, nvlink_bytes_per_s=450e9, pcie_generation=5, pcie_width=16,
        pcie_bytes_per_s=63e9,
    )  # fmt: skip
    slow = msgspec.structs.replace(fast, uuid="GPU-1", index=1, nvlinks=9, nvlink_bytes_per_s=225e9)
    found.add(Links(gpus=[fast, slow]))
    found.add(Begins(library="nccl", bytes=1 << 30))
    measured = Measured(bytes=1 << 30, calls=5, seconds=(1 << 30) / 180e9)
    found.add(measured)
    assert found.heading() == [
        "all-reduce · 2 GPUs · nccl · torch-ddp",
        "GPU 0: H200 · NVLink ×18 450 GB/s · PCIe 5 ×16 63 GB/s each way",
        "GPU 1: H200 · NVLink ×9 225 GB/s · PCIe 5 ×16 63 GB/s each way",
        "",
        "      size        time    algorithm GB/s    bus GB/s   of the links",
    ]
    assert found.row(measured).split() == ["1.00", "GiB", "6.0", "ms", "180", "180", "80", "%"]
    # Of one that does not say nothing is known.
    found.add(Links(gpus=[fast]))
    assert found.link_bytes_per_s is None
    assert found.row(measured).split()[-1] == "180"


@needs_compiler
def test_links_are_what_the_driver_says(tmp_path: Path) -> None:
    plain = {"pcie_generation": 5, "pcie_width": 16}
    script = gpu("GPU-a", "H200", **plain, nvlinks=18, nvlinks_up=17, nvlink_mbps=26562)
    fake = FakeNvml(tmp_path, script + gpu("GPU-b", "L4", pcie_generation=4, pcie_width=8, nvlinks=0) + gpu("GPU-c"))
    command = [sys.executable, "-m", "tuiapp.trainers.telemetry.links"]
    done = subprocess.run(command, env=fake.run_environment(), capture_output=True, check=True, timeout=60)
    first, second, third = msgspec.json.decode(done.stdout, type=list[Link])
    assert (first.uuid, first.index, first.name, first.nvlinks) == ("GPU-a", 0, "H200", 17)
    assert first.bytes_per_s == first.nvlink_bytes_per_s == pytest.approx(17 * 26.562e9)
    assert first.pcie_bytes_per_s == pytest.approx(63.0e9, rel=1e-3)
    assert second.bytes_per_s == second.pcie_bytes_per_s == pytest.approx(15.75e9, rel=1e-3)
    assert (third.pcie_generation, third.bytes_per_s) == (None, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bandwidth", "--platform", "cpu", "--devices", "1"], "two devices or more, and 1 is chosen."),
        (["--bandwidth", "--platform", "cpu", "--device-ids", "0"], "two devices or more, and 1 is chosen."),
        (["--bandwidth", "--devices", "2", "--device-ids", "0,1"], "omit one of them."),
        (
            ["--bandwidth", "--platform", "cpu", "--device-ids", "0,1"],
            "but platform is cpu: leave it empty",
        ),
        (["--bandwidth", "--watch"], "measures once"),
        (["--device-ids", "0"], "--device-ids is for --bandwidth."),
        (["--bandwidth", "--seconds", "0"], "'0' is not a number of seconds from 1 to 3600."),
        (["--bandwidth", "--framework", "mxnet"], "invalid choice: 'mxnet'"),
    ],
)
def test_what_cannot_be_measured_is_refused(tuiapp: Command, words: list[str], said: str) -> None:
    done = tuiapp("devices", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def check(facts: dict[str, Any], library: str, devices: int) -> None:
    assert (facts["library"], facts["platform"], facts["devices"]) == (library, "cpu", devices)
    assert (facts["links"], facts["link_bytes_per_s"], facts["problem"]) == ([], None, None)
    sizes = [one["bytes"] for one in facts["sizes"]]
    assert sizes
    assert [*sizes, facts["left_out"]["bytes"]] == list(SIZES[: len(sizes) + 1])
    for one in facts["sizes"]:
        assert one["algorithm_bytes_per_s"] == pytest.approx(one["bytes"] / one["seconds"])
        factor = 2 * (devices - 1) / devices
        assert one["bus_bytes_per_s"] == pytest.approx(factor * one["algorithm_bytes_per_s"])


@pytest.mark.by_hand
@pytest.mark.parametrize(("framework", "library", "devices"), [("torch", "gloo", 3), ("jax", "xla", 2)])
def test_real_devices(framework: str, library: str, devices: int) -> None:
    done = as_process(*MEASURE[3:], "--framework", framework, "--devices", devices, "--seconds", "6")
    assert done.code == 0
    check(json.loads(done.out), library, devices)
    assert done.err.splitlines()[0] == "tuiapp: measuring 1.00 KiB"
    assert not [orphan for orphan in find_orphans() if orphan.run_id == "bandwidth"]


@pytest.mark.nightly
def test_lines_for_people() -> None:
    done = as_process(*MEASURE[3:-1], "--seconds", "4")
    assert done.code == 0
    title, empty, heading, *rows = done.out.splitlines()
    assert (title, empty) == ("all-reduce · 2 CPU devices · gloo · torch-ddp", "")
    assert heading == "      size        time    algorithm GB/s    bus GB/s"
    assert rows[0].startswith("  1.00 KiB ")
    assert re.fullmatch(r".*iB and more: it would take more than the 4 s that all may take", rows[-1])


@pytest.mark.nightly
def test_ranks_that_fail_are_told() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--no_such_flag"}
    done = subprocess.run(
        [*MEASURE, "--framework", "jax"], env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 1
    assert "tuiapp: the measurement failed: rank 0 " in done.stderr
    assert json.loads(done.stdout)["problem"].startswith("the measurement failed: rank 0 ")


@pytest.mark.by_hand
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)])
def test_its_end_is_that_of_all_ranks(number: signal.Signals) -> None:
    """With Ctrl-C at once; where nothing can be done any more they notice."""
    with subprocess.Popen(
        [*MEASURE, "--seconds", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "tuiapp: measuring 1.00 KiB\n"
        children = psutil.Process(process.pid).children()
        (token,) = {child.environ()[TOKEN] for child in children if "tuiapp.trainers.run.bandwidth" in child.cmdline()}
        ranks = tagged_processes(token)
        assert len(ranks) == 3
        process.send_signal(number)
        process.wait(30)
        if number == signal.SIGINT:
            assert process.returncode == 130
            assert process.stdout is not None
            assert process.stdout.read() == ""
            assert not tagged_processes(token)
        deadline = time.monotonic() + 30
        while tagged_processes(token):
            assert time.monotonic() < deadline
            time.sleep(0.02)
