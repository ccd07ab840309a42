"""The command on a scripted driver: NVIDIA's library and `nvidia-smi`, which may not agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fake_nvml import GIB, FakeNvml, needs_compiler, several

pytestmark = needs_compiler

ROW = "{index}, GPU-{index:04}, {name} {index}, {driver}, 81920, 600, 4520, 42, 310.50, 700.00, 61"
"""What `nvidia-smi` says of a GPU as `PLAIN` has it: 5 GiB in use, of which the driver has 600 MiB."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return FakeNvml(tmp_path, several(2)).run_environment()


def driver_version(environment: dict[str, str]) -> str:
    text = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlSystemGetDriverVersion())"
    return run([sys.executable, "-c", text], environment).stdout.strip()


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def report(tmp_path: Path, environment: dict[str, str], name: str) -> tuple[int, dict[str, Any]]:
    """Runs the check of devices beside an `nvidia-smi` that gives the GPUs' names as `name`."""
    rows = [ROW.format(index=index, name=name, driver=driver_version(environment)) for index in (0, 1)]
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
    script.chmod(0o755)
    path = {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run([sys.executable, "-m", "tests.bench.gpu", "--only", "devices", "--output", str(tmp_path / name)], path)
    return done.returncode, json.loads((tmp_path / name / "report.json").read_text())


@pytest.mark.nightly
def test_devices_agree_with_nvidia_smi(tmp_path: Path, environment: dict[str, str]) -> None:
    code, told = report(tmp_path, environment, "Fake")
    (devices,) = told["checks"]
    assert (code, devices["status"]) == (0, "passed"), devices
    assert not told["on_cpu"]
    assert [gpu["uuid"] for gpu in told["gpus"]] == ["GPU-0000", "GPU-0001"]
    assert len([finding for finding in devices["findings"] if finding["what"].startswith("GPU ")]) == 16


@pytest.mark.nightly
def test_or_they_do_not(tmp_path: Path, environment: dict[str, str]) -> None:
    code, told = report(tmp_path, environment, "Other")
    (devices,) = told["checks"]
    assert (code, devices["status"]) == (1, "failed")
    bad = {finding["what"] for finding in devices["findings"] if finding["ok"] is False}
    assert bad == {
        f"GPU {index}: {what}" for index in (0, 1) for what in ("index, name", "doctor has name, UUID and driver")
    }


ASK = """
import json, time
from tests.bench.gpu.smi import Nvml
gpu = Nvml("GPU-0001")
before = gpu.energy_j()
time.sleep(0.2)
print(json.dumps([gpu.used_bytes(), gpu.total_bytes(), gpu.energy_j() - before, list(gpu.pids())]))
"""


def test_a_gpu_is_asked_by_its_uuid(tmp_path: Path) -> None:
    gpus = several(2).replace("gpu GPU-0001 Fake 1\n", "gpu GPU-0001 Fake 1\nprocess 4711 1000000\n")
    environment = FakeNvml(tmp_path, gpus).run_environment()
    done = run([sys.executable, "-c", ASK], environment)
    used, total, joules, pids = json.loads(done.stdout)
    assert (used, total, pids) == (5 * GIB, 80 * GIB, [4711])
    assert 0.2 * 310.5 <= joules < 60 * 310.5
