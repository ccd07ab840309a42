"""Proves the program on a GPU machine: `python -m tests.bench.gpu`, in less than ten minutes and without a network.

Prints a line a check as it ends, then a table in Markdown. The output directory has a folder for each check, with its
log and pictures, and after each check anew `report.json`, `report.md` and `pack.tar.gz`, in which is all that is worth
keeping. Exits with 1 if a check fails or was not run for want of time, with 2 if there is no GPU. See README.md beside
this file.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.gpu import smi
from tests.bench.gpu.checks import CHECKS
from tests.bench.gpu.report import machine, pack, passed, table, write
from tests.bench.gpu.runner import BUDGET_S, Outcome, run
from tuiapp.trainers.config.machine import VISIBLE, choose


def main(words: Sequence[str] | None = None) -> int:
    """Runs the checks; returns the exit code."""
    names = [check.name for check in CHECKS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the checks, run none")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=names, default=names, help="these alone")
    parser.add_argument(
        "--on-cpu", action="store_true", help="what can be run on the CPU, whether or not there is a GPU"
    )
    parser.add_argument(
        "--budget", metavar="S", type=float, default=BUDGET_S, help="seconds for all (default: %(default)g)"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="for the report (default: a new one in /tmp)")
    options = parser.parse_args(words)
    checks = [check for check in CHECKS if check.name in options.only]
    if options.list:
        for check in checks:
            print(f"{check.name:12} {check.takes_s:4.0f} s  {check.proves}")
        return 0
    began = time.time()
    rows = smi.ask()
    gpus = [] if options.on_cpu else usable(rows)
    if not gpus and not options.on_cpu:
        print("nvidia-smi shows no GPU that may be used here; --on-cpu runs what needs none", file=sys.stderr)
        return 2
    report = (options.output or Path(tempfile.mkdtemp(prefix="tuiapp-gpu-"))).resolve()
    make_home(report)
    if not gpus:
        # Where other programs run, a rank's threads would wait for each other.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    outcomes, about = list[Outcome](), machine(rows)
    signal.signal(signal.SIGTERM, _give_up)
    # Killed, it has packed all but the check that runs, whose findings and logs it packs now if it is asked to end.
    atexit.register(pack, report)
    for outcome in run(checks, report, gpus, options.budget):
        outcomes.append(outcome)
        facts = {"began": began, "seconds": time.time() - began, "on_cpu": not gpus, **about}
        write(report, outcomes, facts)
        pack(report)
        print(
            f"{outcome.name:12} {outcome.status:8} {outcome.seconds:5.1f} s  {outcome.why}", file=sys.stderr, flush=True
        )
    print(table(outcomes))
    for outcome in outcomes:
        if outcome.error:
            print(f"{outcome.name}:\n{outcome.error}", file=sys.stderr)
    print(report / "report.json")
    return 0 if passed(outcomes) else 1


def _give_up(number: int, _: object) -> None:
    sys.exit(128 + number)


def usable(rows: Sequence[dict[str, str]]) -> list[str]:
    """UUIDs of the GPUs that CUDA_VISIBLE_DEVICES leaves, those with the least memory in use first."""
    used = {row["uuid"]: smi.number(row["memory.used"]) or 0.0 for row in rows}
    chosen = choose(os.environ.get(VISIBLE, "all"), dict.fromkeys(used, ()))
    # Within a gigabyte they are alike: the order of nvidia-smi.
    return sorted(chosen, key=lambda uuid: used[uuid] // 1024)


def make_home(report: Path) -> None:
    """No preset, setting or run of the user's is read or written; the caches are kept as long as the report."""
    report.mkdir(parents=True, exist_ok=True)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(report / "home" / name.split("_")[1].lower())
    for name in ("TUIAPP_RUNS_DIR", "TUIAPP_DATA_DIR", "TUIAPP_MIRROR"):
        os.environ.pop(name, None)
    # As nvidia-smi counts them.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


if __name__ == "__main__":
    sys.exit(main())
