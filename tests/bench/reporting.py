"""What a call of `tuiapp.log` costs the training thread: 8 scalars, a real recorder, and disabled.

    python -m tests.bench.reporting [--calls N] [--json]

Prints microseconds a call, median and 99th percentile, of each kind of value: Python floats, NumPy scalars, and tensors
where PyTorch is installed. Between bursts of calls the thread computes, as one that trains does: after a sleep the
first call would time how the processor wakes up. The disabled calls are timed by the thousand: one takes less than the
clock. "between" is a call with floats after each product of matrices, as a step has them: the processor's caches then
hold nothing of Python, which is most of what such a call costs.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

MATRIX = np.ones((256, 256), np.float32)
NAMES = ("loss", "lr", "grad_norm", "train/accuracy", "train/ppl", "a", "b", "c")


def times(log: Callable[[dict[str, Any], int], None], value: Any, calls: int, first: int) -> list[float]:
    """Microseconds of each call, at about 2,000 calls a second."""
    found = []
    for step in range(first, first + calls):
        values = dict.fromkeys(NAMES, value)
        began = time.perf_counter()
        log(values, step)
        found.append(1e6 * (time.perf_counter() - began))
        if step % 20 == 0:
            until = time.perf_counter() + 0.01
            while time.perf_counter() < until:
                MATRIX @ MATRIX
    return found


def between(log: Callable[[dict[str, Any], int], None], calls: int, first: int) -> list[float]:
    """Microseconds of each call that follows a product of matrices larger than the caches."""
    matrix = np.ones((600, 600), np.float32)
    found = []
    for step in range(first, first + calls):
        values = dict.fromkeys(NAMES, 0.5)
        matrix @ matrix
        began = time.perf_counter()
        log(values, step)
        found.append(1e6 * (time.perf_counter() - began))
    return found


def main() -> None:
    """Measures, and prints a line per kind of value."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    import tuiapp

    values: dict[str, Any] = {"float": 0.5, "numpy": np.float32(0.5)}
    if find_spec("torch"):
        import torch

        values["torch, CPU"] = torch.tensor(0.5)
    with tempfile.TemporaryDirectory() as directory:
        run = tuiapp.init(dir=directory)
        found: dict[str, dict[str, float]] = {}
        for number, (kind, value) in enumerate(values.items()):
            each = sorted(times(tuiapp.log, value, options.calls, 1 + number * options.calls))
            found[kind] = {"median": round(median(each), 2), "p99": round(each[int(0.99 * len(each))], 2)}
        each = sorted(between(tuiapp.log, 1000, 1 + len(values) * options.calls))
        found["between"] = {"median": round(median(each), 2), "p99": round(each[990], 2)}
        run.finish()
        os.environ["TUIAPP_MODE"] = "disabled"
        tuiapp.init()
        batches = []
        given = dict.fromkeys(NAMES, 0.5)
        for _ in range(200):
            began = time.perf_counter()
            for step in range(1000):
                tuiapp.log(given, step)
            batches.append(1e3 * (time.perf_counter() - began))
        found["disabled"] = {"median": round(median(batches), 3), "p99": round(sorted(batches)[197], 3)}
    for kind, figures in found.items():
        print(f"{kind:>12}: median {figures['median']:6.2f} µs, p99 {figures['p99']:6.2f} µs")
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
