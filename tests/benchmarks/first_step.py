"""Launch to the first step, beside a bare torch.multiprocessing script: `python -m tests.benchmarks.first_step`.

Both start a fresh program that ends up making the first step of `quickstart` on two CPU ranks; they alternate, so
that whatever else the machine does meets both. Seconds from the program's start; and, for tuiapp, from the call of
`trainers.launch.launch`, which is what Ctrl+R in the dashboard waits for.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.harness import watching
from trainers.contract import mailbox
from trainers.contract.events import Phase, RunStarted, Steps
from trainers.contract.rundir import RunDir

ROUNDS = 5
DATA = Path(__file__).parents[2] / "trainers" / "data" / "digits.npz"


def bare() -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.benchmarks.bare_ddp", str(DATA), "net", "2", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["first_step"]) - began


def ours(runs_dir: str) -> tuple[float, float]:
    began = time.monotonic()
    settings = ["--set", "platform=cpu", "--set", "devices=2"]
    command = [sys.executable, "-m", "tuiapp", "run", "quickstart", *settings, "--detach", "--json"]
    done = subprocess.run([*command, "--runs-dir", runs_dir], capture_output=True, text=True, check=True)
    with watching(RunDir(Path(json.loads(done.stdout)["directory"]))) as run:
        first = run.wait(Steps, lambda event: event.rank == 0)
        training = run.wait(Phase, lambda event: event.rank == 0 and event.phase == "training")
        launched = run.wait(RunStarted).mono
        mailbox.send(run.run.commands, "stop-now")
        run.end()
    at = training.mono + first.seconds[0]
    return at - began, at - launched


def main() -> None:
    rows: dict[str, list[float]] = {"bare script": [], "tuiapp run": [], "tuiapp, from the run's first event": []}
    with tempfile.TemporaryDirectory() as runs_dir:
        for number in range(ROUNDS):
            rows["bare script"].append(bare())
            whole, from_launch = ours(runs_dir)
            rows["tuiapp run"].append(whole)
            rows["tuiapp, from the run's first event"].append(from_launch)
            print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    for name, seconds in rows.items():
        print(f"{name:36} median {statistics.median(seconds):.2f} s   {min(seconds):.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
