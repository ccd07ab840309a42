"""`tuiapp devices` before a library that says what a script says, loaded by the real pynvml."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command_line import Command
from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler, several
from tests.kit.terminal import Terminal
from tests.kit.waiting import wait_until
from tests.unit.telemetry.test_keeper import WITH_SHORT_LIMITS
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
