"""`tuiapp devices`, before a library that says what a script says, and `--bandwidth`, with real all-reduces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.command_line import Command, as_process
from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler, several
from tests.kit.terminal import Terminal
from tests.kit.waiting import wait_until
from tests.unit.telemetry.test_keeper import WITH_SHORT_LIMITS
from tuiapp.examples.all_reduce import SIZES, run_sizes
from tuiapp.trainers.config.machine import Link
from tuiapp.trainers.telemetry import keeper

HERE = [sys.executable, "-m", "tuiapp", "devices"]


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, several(2))
    fake.install(monkeypatch)
    return fake


def facts(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)
    assert set(found) == {"time", "host", "gpus", "leases", "cuda_visible_devices", "problems"}
    return found


def open_processes() -> set[int]:
    """Samplers that are still there."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return {
        int(pid) for pid, parent, args in rows[1:] if int(parent) == os.getpid() and "tuiapp.trainers.telemetry" in args
    }


@needs_compiler
def test_gpus_as_json_are_what_the_library_says(tuiapp: Command, nvml: FakeNvml) -> None:
    # What the driver measures itself needs no clock of ours.
    measured = {"pcie_rx_bytes": None, "pcie_tx_bytes": None, "pcie_rx_kb": 2000, "pcie_tx_kb": 1000}
    nvml.say([gpu("GPU-aaaa", "NVIDIA H200", "process 1 1073741824", temperature=88, reasons="0x24", **measured),
              gpu("GPU-bbbb", "NVIDIA H200", utilization=None, fan=None, energy_mj=None, power_mw=None)])  # fmt: skip
    done = tuiapp("devices", "--json")
    assert (done.code, done.err) == (0, "")
    found = facts(done)
    first, second = found["gpus"]
    assert (first["index"], first["uuid"], first["name"]) == (0, "GPU-aaaa", "NVIDIA H200")
    assert (first["utilization_percent"], first["memory_utilization_percent"]) == (42, 7)
    assert (first["memory_used_bytes"], first["memory_total_bytes"]) == (5 * GIB, 80 * GIB)
    assert (first["power_w"], first["power_limit_w"]) == (310.5, 700)
    assert (first["temperature_c"], first["throttle_reasons"]) == (88, ["power limit", "hot"])
    assert (first["pcie_rx_bytes_per_s"], first["pcie_tx_bytes_per_s"]) == (2e6, 1e6)
    assert first["processes"][0]["memory_bytes"] == GIB
    for name in ("utilization_percent", "fan_percent", "power_w"):
        assert second[name] is None
    assert found["problems"] == {"NVML": ""} or found["problems"] == {}
    assert found["host"]["memory_total_bytes"] > 0


@needs_compiler
def test_parts_of_a_gpu(tuiapp: Command, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [f"mig MIG-{name} 1g.10gb {10 * GIB} {2 * GIB}" for name in "ab"]
    # The driver names it for the whole GPU as well.
    process = f"process {os.getpid()} {2 * GIB} 1"
    monkeypatch.setenv("TUIAPP_TELEMETRY_HOST_PIDS", "1")
    nvml.say(gpu("GPU-aaaa", "NVIDIA H200", *parts, process, mig_mode=1, utilization=None))
    found = facts(tuiapp("devices", "--json"))["gpus"][0]
    assert [part["uuid"] for part in found["mig"]] == ["MIG-a", "MIG-b"]
    assert [[one["pid"] for one in part["processes"]] for part in found["mig"]] == [[], [os.getpid()]]
    assert found["processes"] == []
    assert found["utilization_percent"] is None
    shown = tuiapp("devices").out
    assert shown.count("1g.10gb") == 2
    assert shown.count("2.0/10.0 GiB") == 2
    assert shown.count(f"pid {os.getpid()}") == 1
    assert [line.split()[0] for line in shown.splitlines() if line.endswith("2.00 GiB")].count("processes") == 1
    assert "not available: utilization" in shown


@pytest.mark.nightly
@needs_compiler
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("fault nvmlDeviceGetPowerUsage hang 300", "did not answer within 1 s"),
        ("fault nvmlInitWithFlags hang 300", "did not answer within 2 s"),
        ("fault nvmlDeviceGetPowerUsage crash", "died of SIGSEGV"),
    ],
)
def test_a_driver_that_hangs_or_crashes_takes_nothing_with_it(
    fault: str, words: str, tuiapp: Command, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_LIMIT_S", "2" if "Init" in fault else "60")
    monkeypatch.setattr(keeper, "COMMAND", [sys.executable, "-P", "-c", WITH_SHORT_LIMITS])
    nvml.say(f"{fault}\n{several(2)}")
    done = tuiapp("devices", "--json")
    assert done.code == 1
    assert words in done.err
    found = facts(done)
    assert words in found["problems"]["NVML"]
    assert found["host"]["memory_total_bytes"] > 0
    wait_until(lambda: not open_processes())


@pytest.mark.nightly
@needs_compiler
def test_watching_into_a_pipe_gives_an_object_a_line(nvml: FakeNvml) -> None:
    watch = [*HERE, "--json", "--watch", "--interval", "0.25"]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        nvml.say(several(2, utilization=77))
        for line in process.stdout:
            found = json.loads(line)
            assert found["time"] > first["time"]
            if found["gpus"][1]["utilization_percent"] == 77:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


@pytest.mark.nightly
@needs_compiler
def test_watching_on_a_terminal_draws_in_place(nvml: FakeNvml) -> None:
    with Terminal([*HERE, "--watch", "--interval", "0.25"], columns=90, lines=45) as terminal:
        terminal.wait(r"utilization +42 %")
        nvml.say(several(2, utilization=99))
        terminal.wait(r"utilization +99 %")
        # A picture may come in two parts; the lower one of the one before is gone by then.
        wait_until(lambda: terminal.text.count("host memory") == 1)
        terminal.resize(60, 20)
        terminal.wait(r"2 GPUs +busy")
        terminal.wait(r"host CPU")
        terminal.press("ctrl+c")
        assert terminal.wait_exit() == 130
        # A cursor that was never hidden need not be shown again.
        assert b"\x1b[?25l" not in terminal.raw


@pytest.mark.parametrize("interval", ["0.1", "nan", "inf", "soon", "-1", "1e9", "١", "1_0"])
def test_an_interval_that_cannot_be_is_refused(interval: str, tuiapp: Command) -> None:
    done = tuiapp("devices", "--watch", f"--interval={interval}")
    assert done.code == 2
    assert "not a number of seconds from 0.25 to 3600" in done.err


@pytest.mark.parametrize(
    ("most_bytes", "seconds", "stops", "count", "why"),
    [
        (1 << 40, 60, False, len(SIZES), ""),
        (1 << 40, 4, False, None, "would take longer than the 4 s that all may take"),
        (5 << 10, 60, False, 2, "16.0 KiB and more do not fit into the memory that is free"),
        (1 << 40, 60, True, 0, "1.00 KiB and more were not measured: the run was stopped"),
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
