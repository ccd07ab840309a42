"""Examples per second with all reporting on, beside a bare loop: `python -m tests.benchmarks.throughput`.

Both train on the same digits with the same model, optimizer, batch and ranks, and count the epochs after the first;
they alternate. tuiapp evaluates between its epochs, which is not counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
EPOCHS = {"mlp": 20, "net": 6}
DATA = Path(__file__).parents[2] / "trainers" / "data" / "digits.npz"


def bare(model: str, devices: int) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.bare_ddp", str(DATA), model, str(devices), str(EPOCHS[model])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["examples_per_second"])


def ours(model: str, devices: int, runs_dir: str) -> float:
    values = {"model": model, "devices": devices, "platform": "cpu", "epochs": EPOCHS[model]}
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-P", "-m", "tuiapp", "run", *settings, "--json", "--runs-dir", runs_dir]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["examples_per_second"])


def main() -> None:
    print("torch-ddp on the CPU, examples/s: median (least to most)")
    with tempfile.TemporaryDirectory() as runs_dir:
        for model in EPOCHS:
            for devices in (1, 2):
                rates: dict[str, list[float]] = {"tuiapp": [], "bare": []}
                for _ in range(ROUNDS):
                    rates["tuiapp"].append(ours(model, devices, runs_dir))
                    rates["bare"].append(bare(model, devices))
                ratio = statistics.median(rates["tuiapp"]) / statistics.median(rates["bare"])
                sides = ", ".join(
                    f"{name} {statistics.median(side):,.0f} ({min(side):,.0f} to {max(side):,.0f})"
                    for name, side in rates.items()
                )
                print(f"{model:4} {devices} ranks: {sides}: {ratio:.2f}×", flush=True)


if __name__ == "__main__":
    main()
