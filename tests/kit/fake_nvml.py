"""NVIDIA's library for machines without one: compiled by the tests, and told by a text file what to say."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

GIB = 2**30

PLAIN = {
    "utilization": "42",
    "memory_utilization": "7",
    "memory_total": str(80 * GIB),
    "memory_used": str(5 * GIB),
    "power_mw": "310500",
    "power_limit_mw": "700000",
    "energy_mj": "rate 310500",
    "temperature": "61",
    "temperature_limit": "87",
    "sm_clock": "1755",
    "sm_clock_limit": "1980",
    "memory_clock": "2619",
    "reasons": "0",
    "performance_state": "0",
    "pcie_rx_bytes": "rate 2000000",
    "pcie_tx_bytes": "rate 1000000",
    "nvlink_rx_kib": "rate 4000",
    "nvlink_tx_kib": "rate 3000",
    "fan": "30",
    "ecc_corrected": "0",
    "ecc_uncorrected": "0",
    "no_processes": "1",
}
"""What a GPU of today tells."""


def gpu(uuid: str, name: str = "Fake", *more: str, **values: str | int | None) -> str:
    """A GPU's part of a script: like `PLAIN` but for some values; None: it does not tell.

    Args:
        uuid: The GPU's.
        name: The GPU's.
        more: Further lines: faults, processes, MIG instances.
        values: In place of the plain ones.
    """
    told = {**PLAIN, **{key: value if value is None else str(value) for key, value in values.items()}}
    lines = [f"gpu {uuid} {name}", *(f"{key} {value}" for key, value in told.items() if value is not None), *more]
    return "\n".join(lines) + "\n"


def several(count: int, **values: str | int | None) -> str:
    """So many GPUs alike."""
    return "".join(gpu(f"GPU-{number:04}", f"Fake {number}", **values) for number in range(count))


class FakeNvml:
    """The library in a directory of its own.

    Args:
        directory: Where to.
        script: What it is to say at first.
    """

    def __init__(self, directory: Path, script: str) -> None:
        self._script = directory / "nvml.txt"
        self._library = directory / "lib"
        self._library.mkdir(exist_ok=True)
        target = self._library / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", target, SOURCE], check=True)
        self.say(script)

    def say(self, script: str | Sequence[str]) -> None:
        """Let it tell something else from now on."""
        text = script if isinstance(script, str) else "".join(script)
        draft = self._script.with_suffix(".draft")
        # A name may hold bytes that are no text: "\udcff" stands for such a one.
        draft.write_text(text, errors="surrogateescape")
        draft.replace(self._script)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it, and it its script."""
        return {"LD_LIBRARY_PATH": str(self._library), "FAKE_NVML_SCRIPT": str(self._script)}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the processes that are started from here find it."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def run_environment(self) -> dict[str, str]:
        """This process's environment with it."""
        return {**os.environ, **self.environment}
