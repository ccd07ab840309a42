"""Which GPUs a run really gets, on machines of 1, 4 and 8 scripted GPUs: busy ones, MIG, and what the user has hidden.

`tuiapp run` launches a script whose ranks say what they were given.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler, several
from tests.kit.harness import Watched
from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.gpu_leases import leases
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = needs_compiler

SCRIPT = """\
import os
print("given", os.environ["CUDA_VISIBLE_DEVICES"])
assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
"""
IDLE: dict[str, Any] = {"memory_used": 0, "utilization": 0}
BUSY = {"memory_used": 79 * GIB, "utilization": 99, "no_processes": None}


class Given:
    """What a launch said, and gave each rank."""

    def __init__(self, done: subprocess.CompletedProcess[str], runs_dir: Path) -> None:
        self.code, self.said = done.returncode, done.stderr
        result = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
        logs = sorted(Path(result["directory"]).glob("ranks/*/stdout.log")) if result else []
        words = [log.read_text().split() for log in logs]
        self.gpus = [one[1].split(",") if len(one) > 1 else [] for one in words]


def run(tmp_path: Path, nvml: FakeNvml, *settings: str, **environment: str) -> Given:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    passed = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-P", "-m", "tuiapp", "run", str(script), *passed, "--json"]
    done = subprocess.run(
        [*command, "--runs-dir", str(tmp_path / "runs")],
        env={**nvml.run_environment(), "TUIAPP_TELEMETRY_HOST_PIDS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Given(done, tmp_path / "runs")


def gated(tmp_path: Path) -> tuple[Path, Path]:
    """A script that ends once there is a file, and that file."""
    script, gate = tmp_path / "train.py", tmp_path / "gate"
    script.write_text(
        f"{SCRIPT}import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)\n"
    )
    return script, gate


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("visible", "why"), [("", 'CUDA_VISIBLE_DEVICES="" hides'), ("-1", 'CUDA_VISIBLE_DEVICES="-1" hides')]
)
def test_hidden_gpus_are_not_trained_on(tmp_path: Path, visible: str, why: str) -> None:
    nvml = FakeNvml(tmp_path, several(4))
    found = run(tmp_path, nvml, "devices=1", CUDA_VISIBLE_DEVICES=visible)
    assert (found.code, found.gpus) == (0, [[]])
    refused = run(tmp_path, nvml, "platform=cuda", CUDA_VISIBLE_DEVICES=visible)
    assert refused.code == 2
    assert f"platform: cuda cannot be used here: {why} all 4 GPUs of this machine." in refused.said


@pytest.mark.nightly
def test_who_uses_the_others_is_said_before_the_launch(tmp_path: Path) -> None:
    mine = f"process {os.getpid()} {70 * GIB}"
    nvml = FakeNvml(tmp_path, gpu("GPU-0000", "Fake 0", mine, **BUSY) + gpu("GPU-0001"))
    found = run(tmp_path, nvml, "devices=2")
    assert found.gpus == [["GPU-0000", "GPU-0001"]] * 2
    warning = next(line for line in found.said.splitlines() if "in use" in line)
    assert warning.startswith("tuiapp: GPU 0 is in use: 99 % busy · ")
    # The user's name is not known where pids are the host's.
    assert warning.endswith(" 1 process 70.0 GiB")
    assert found.said.index("in use") < found.said.index("given")


@pytest.mark.nightly
def test_six_runs_over_four_gpus(tmp_path: Path) -> None:
    """In a loop of the shell, where none has got as far as its GPU when the next one is launched."""
    nvml = FakeNvml(tmp_path, several(4, **IDLE))
    script, gate = gated(tmp_path)
    launch = f"{sys.executable} -P -m tuiapp run {script} --set devices=1 --detach --runs-dir {tmp_path}/runs"
    devices = [sys.executable, "-P", "-m", "tuiapp", "devices", "--json", "--runs-dir", f"{tmp_path}/runs"]
    environment = {**nvml.run_environment(), "TUIAPP_TELEMETRY_HOST_PIDS": "1"}
    try:
        loop = f"for run in 1 2 3 4; do {launch} & done; wait; for run in 5 6; do {launch}; done"
        subprocess.run(loop, shell=True, env=environment, check=True, timeout=120)
        runs = sorted((tmp_path / "runs").iterdir())
        given = [tomllib.loads((run / "run.toml").read_text())["device_ids"][0] for run in runs]
        assert sorted(given[:4]) == [f"GPU-{number:04}" for number in range(4)]
        assert given[4] != given[5]
        listed = json.loads(subprocess.run(devices, env=environment, capture_output=True, check=True).stdout)
        assert sorted(lease["run"] for lease in listed["leases"]) == sorted(run.name for run in runs)
    finally:
        gate.touch()
        for run in (tmp_path / "runs").iterdir():
            Watched(RunDir(run)).wait_gone()
    assert not leases()


@pytest.mark.nightly
def test_nodes_take_leases_of_their_machine_s_gpus(tmp_path: Path) -> None:
    """Two nodes that are one machine, where neither has got as far as its GPU when the other one chooses."""
    nvml = FakeNvml(tmp_path, several(4, **IDLE))
    (script, gate), runs_dir = gated(tmp_path), tmp_path / "runs"
    given = ["launcher=join", "nodes=2", "devices=2", "network=lo"]
    launch = [sys.executable, "-P", "-m", "tuiapp", "run", str(script), *(f"--set={one}" for one in given)]
    environment = {**nvml.run_environment(), "TUIAPP_TELEMETRY_HOST_PIDS": "1"}
    subprocess.run([*launch, "--detach", "--runs-dir", str(runs_dir)], env=environment, check=True, timeout=60)
    watched = RunDir(next(path for path in runs_dir.iterdir() if path.name[0].isdigit()))
    wait_until(watched.port.exists)
    join = [sys.executable, "-P", "-m", "tuiapp", "join", watched.port.read_text().strip()]
    with subprocess.Popen([*join, "--secret-file", str(watched.secret)], env=environment):
        try:
            wait_until(lambda: len(leases()) == 2)
            assert {lease.gpu for lease in leases()} == {"GPU-0000", "GPU-0001"}
            assert {lease.run for lease in leases()} == {watched.run_id}
        finally:
            gate.touch()
            Watched(watched).wait_gone()
    assert not leases()


@pytest.mark.nightly
def test_a_sick_driver_does_not_train_on_the_cpu_without_a_word(tmp_path: Path) -> None:
    """After an upgrade without a reboot."""
    nvml = FakeNvml(tmp_path, "fault nvmlInitWithFlags return 18\n")
    trouble = "the driver's library and its kernel module are of different versions: reboot, or reload the module"
    assert f"tuiapp: no GPU is used: NVML: {trouble}" in run(tmp_path, nvml).said
    assert "no GPU is used" not in run(tmp_path, nvml, "platform=cpu").said
    command = [sys.executable, "-P", "-m", "tuiapp", "doctor"]
    said = subprocess.run(command, env=nvml.run_environment(), capture_output=True, text=True).stdout
    assert re.search(rf"(?m)^warn  GPU +NVML: {trouble}: runs use the CPU$", said)
