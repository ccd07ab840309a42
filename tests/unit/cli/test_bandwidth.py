"""`tuiapp devices --bandwidth`: real all-reduces between CPU ranks, and what a driver says of its links."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.kit.command_line import Command, as_process
from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler
from tuiapp.examples.all_reduce import SIZES, run_sizes
from tuiapp.trainers.config.machine import Link


@pytest.mark.parametrize(
    ("most_bytes", "seconds", "stops", "count", "why"),
    [
        (1 << 40, 60, False, len(SIZES), ""),
        (1 << 40, 4, False, None, "would take longer than the 4 s that all may take"),
        (5 << 10, 60, False, 2, "16 KiB and more do not fit into the memory that is free"),
        (1 << 40, 60, True, 0, "1 KiB and more were not measured: the run was stopped"),
    ],
)
def test_sizes_grow_as_far_as_memory_and_time_allow(
    most_bytes: int, seconds: float, stops: bool, count: int | None, why: str
) -> None:
    """On a machine of 1 GB/s that takes 10 µs for anything."""
    taken: list[float] = []
    logged: list[dict[str, float]] = []

    def time_of(size: int, calls: int) -> float:
        taken.append(calls * (1e-5 + size / 1e9))
        return taken[-1]

    left_out = run_sizes(time_of, most_bytes, seconds, lambda: stops, lambda values, _: logged.append(values))
    assert left_out.endswith(why)
    assert [one["bytes"] for one in logged] == list(SIZES[: len(logged)])
    assert len(logged) == count or count is None
    assert sum(taken) < seconds
    for one in logged:
        assert one["seconds"] == pytest.approx(1e-5 + one["bytes"] / 1e9)


@needs_compiler
def test_links_are_what_the_driver_says(tmp_path: Path) -> None:
    plain = {"pcie_generation": 5, "pcie_width": 16}
    script = gpu("GPU-a", "H200", **plain, nvlinks=18, nvlinks_up=17, nvlink_mbps=26562)
    fake = FakeNvml(tmp_path, script + gpu("GPU-b", "L4", pcie_generation=4, pcie_width=8, nvlinks=0) + gpu("GPU-c"))
    command = [sys.executable, "-m", "tuiapp.trainers.telemetry.links"]
    done = subprocess.run(command, env=fake.run_environment(), capture_output=True, check=True, timeout=60)
    first, second, third = msgspec.json.decode(done.stdout, type=list[Link])
    assert (first.uuid, first.index, first.name, first.kind) == ("GPU-a", 0, "H200", "NVLink ×17")
    assert first.bytes_per_s == pytest.approx(17 * 26.562e9)
    assert second.kind == "PCIe 4 ×8"
    assert second.bytes_per_s == pytest.approx(15.75e9, rel=1e-3)
    assert (third.kind, third.bytes_per_s) == ("", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bandwidth", "--platform", "cpu", "--devices", "1"], "two devices or more, and 1 is chosen."),
        (["--bandwidth", "--platform", "cpu", "--device-ids", "0"], "two devices or more, and 1 is chosen."),
        (["--bandwidth", "--devices", "2", "--device-ids", "0,1"], "omit one of them."),
        (["--bandwidth", "--platform", "cpu", "--device-ids", "0,1"], "but platform is cpu: leave it empty"),
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


@pytest.mark.nightly
@pytest.mark.parametrize(("framework", "library", "devices"), [("torch", "gloo", 3), ("jax", "xla", 2)])
def test_real_devices(framework: str, library: str, devices: int, tmp_path: Path) -> None:
    words = ["--framework", framework, "--devices", devices, "--seconds", "6", "--runs-dir", tmp_path]
    done = as_process("devices", "--bandwidth", "--platform", "cpu", "--json", *words)
    assert done.code == 0
    facts = json.loads(done.out)
    assert (facts["library"], facts["platform"], facts["devices"]) == (library, "cpu", devices)
    assert (facts["links"], facts["link_bytes_per_s"], facts["problem"]) == ([], None, None)
    assert [one["bytes"] for one in facts["sizes"]] == list(SIZES[: len(facts["sizes"])])
    assert "would take longer than the 6 s" in facts["left_out"]
    for one in facts["sizes"]:
        assert one["algorithm_bytes_per_s"] == pytest.approx(one["bytes"] / one["seconds"])
        factor = 2 * (devices - 1) / devices
        assert one["bus_bytes_per_s"] == pytest.approx(factor * one["algorithm_bytes_per_s"])
