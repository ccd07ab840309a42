"""Every backend beside a bare loop of its framework: `python -m tests.bench.race [--help]`.

The bare loops (`tests/bench/bare/`) are written as the frameworks' own guides write them, without telemetry,
evaluation or checkpoints. Both sides train the same model on the same examples with Adam, in the same precision, memory
format and compiled or not, as fresh programs, and alternate, so that whatever else the machine does meets both. tuiapp
reports, evaluates and saves as it always does. An epoch's time ends when all of it is computed.
Two figures: examples per second over the epochs after the first; seconds from the program's start to the end of its
first step. A first launch of each kind, not counted, fills the compilation caches.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.kit.harness import Watched
from tests.kit.mxnet_environment import interpreter_of
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.options import format_value
from tuiapp.trainers.contract.events import Phase
from tuiapp.trainers.contract.metrics import STEP_TIME
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.sources import datasets

TIMEOUT_S = 180
ATTEMPTS = 3
"""Of a bare loop: one that hangs, as collectives may, is ended and begun again."""


class Result(NamedTuple):
    """One launch."""

    examples_per_second: float
    first_step_s: float


def settings_of(options: argparse.Namespace, devices: int, model: str) -> dict[str, Any]:
    """What both sides are given, by the names of the configuration's keys."""
    return {
        "model": model,
        "devices": devices,
        "epochs": options.epochs[model],
        "global_batch_size": options.batch,
        "platform": options.platform,
        "precision": options.precision,
        "compile": options.compile,
    }


def bare_command(backend: str, settings: Mapping[str, Any], data: str) -> list[str]:
    module = f"tests.bench.bare.{backend.replace('-', '_')}"
    return [interpreter_of(backend) or sys.executable, "-m", module, data, json.dumps(settings)]


def our_command(backend: str, settings: Mapping[str, Any], dataset: str, runs_dir: str) -> list[str]:
    values = {"backend": backend, "dataset": dataset, **settings}
    if "compile" not in BACKENDS[backend].keys:
        del values["compile"]
    if interpreter := interpreter_of(backend):
        values["python"] = interpreter
    written = [part for key, value in values.items() for part in ("--set", f"{key}={format_value(value)}")]
    return [sys.executable, "-P", "-m", "tuiapp", "run", *written, "--json", "--runs-dir", runs_dir]


def bare(command: Sequence[str]) -> Result:
    """One launch of a bare loop."""
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        # A session of its own, so that its workers end with it.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"{command[2]} hung for {TIMEOUT_S} s", file=sys.stderr)
            continue
        result = json.loads(said.splitlines()[-1])
        return Result(result["examples_per_second"], result["first_step"] - began)
    raise TimeoutError(f"{command[2]} hung {ATTEMPTS} times")


def ours(command: Sequence[str]) -> Result:
    """One launch of tuiapp."""
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    result = json.loads(done.stdout.splitlines()[-1])
    run = Watched(RunDir(Path(result["directory"])))
    training = next(phase for phase in run.of(Phase) if phase.rank == 0 and phase.phase == "training")
    first = run.reports(0)[0].values[STEP_TIME][0] or 0.0
    return Result(result["examples_per_second"], training.mono + first - began)


def in_words(values: Sequence[float], form: str) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def compare(backend: str, options: argparse.Namespace, devices: int, model: str, data: str, runs_dir: str) -> None:
    """Race one backend, and print its line of the table."""
    sides: dict[str, list[Result]] = {"tuiapp": [], "bare": []}
    settings = settings_of(options, devices, model)
    for round_number in range(options.rounds + 1):
        results = {
            "tuiapp": ours(our_command(backend, settings, options.dataset, runs_dir)),
            "bare": bare(bare_command(backend, settings, data)),
        }
        for name, result in results.items():
            if round_number:
                sides[name].append(result)
        print(f"{backend} {model} {devices}: round {round_number} of {options.rounds}", file=sys.stderr)
    rates = {name: [result.examples_per_second for result in side] for name, side in sides.items()}
    starts = {name: [result.first_step_s for result in side] for name, side in sides.items()}
    ratio = statistics.median(rates["tuiapp"]) / statistics.median(rates["bare"])
    cells = [
        f"`{backend}`",
        model,
        str(devices),
        *(in_words(rates[name], ",.0f") for name in sides),
        f"{ratio:.2f}×",
        *(in_words(starts[name], ".2f") for name in sides),
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    builtin = [name for name, backend in BACKENDS.items() if backend.builtin]
    parser.add_argument("--backends", nargs="+", default=builtin, choices=builtin)
    parser.add_argument("--models", nargs="+", default=["net"])
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--batch", type=int, default=48, help="global batch size")
    parser.add_argument("--platform", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "bfloat16"])
    parser.add_argument("--compile", action="store_true", help="torch.compile, for the backends that take it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="by default 20 for mlp, 6 for the others")
    options = parser.parse_args()
    for backend in options.backends:
        if options.compile and "compile" not in BACKENDS[backend].keys:
            parser.error(f"{backend} takes no --compile; name those that do with --backends")
        if options.precision not in BACKENDS[backend].precisions:
            parser.error(f"{backend} does not compute in {options.precision}; leave it out of --backends")
    options.epochs = {model: options.epochs or (20 if model == "mlp" else 6) for model in options.models}
    print("| backend | model | devices | tuiapp, examples/s | bare loop | | tuiapp, s to the first step | bare loop |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        facts = find_dataset(options.dataset)
        arrays = datasets.load(facts)
        data = str(Path(directory) / "arrays.npz")
        np.savez(data, x_train=arrays.x_train, y_train=arrays.y_train, classes=facts.classes)
        for backend in options.backends:
            for model in options.models:
                for devices in options.devices:
                    if backend == "torch-dp" and options.platform == "cpu" and devices > 1:
                        continue
                    compare(backend, options, devices, model, data, directory)


if __name__ == "__main__":
    main()
