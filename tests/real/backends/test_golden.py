"""The first losses of every backend, as they were when somebody last looked at them: `golden/<backend>.json`.

A change that is meant to leave the numbers alone leaves these alone. One that is not is accepted with
`python -m tests.real.backends.test_golden [BACKEND…]`, which writes them anew, and shows in the diff. A file says on
which arithmetic they were made: on another they are as near as `tests.kit.close` derives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.mxnet_environment import interpreter_of
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

GOLDEN = Path(__file__).with_name("golden")
MADE_ON = "made on"
STEPS = 20
CONFIG = RunConfig(
    platform="cpu", epochs=1, max_steps=STEPS, optimizer="sgd", learning_rate=0.001, weight_decay=1e-3,
    schedule="linear", warmup_steps=5, gradient_clip=5.0,
)  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "mlp": {"optimizer": "adam"},
    "resnet18": {"max_steps": 4, "global_batch_size": 8},
}
"""Adam only where there is no BatchNorm: see `test_mesh`. At ten times the rate one ReLU or maximum that rounding turns
to the other side changes later losses by 3e-4.
"""
QUICK = ["mlp", "net"]
SLOW = ["convnet", "resnet18"]


def configured(backend: str, model: str) -> RunConfig:
    # DataParallel has one device on the CPU.
    devices = 1 if backend == "torch-dp" else 2
    return msgspec.structs.replace(CONFIG, backend=backend, model=model, devices=devices, **CHANGES.get(model, {}))


def curve(config: RunConfig, runs_dir: Path, seconds: float = 170) -> list[float]:
    """The mean losses over the devices of a real run, and the test loss at its end."""
    with one_environment(), launched(config, runs_dir) as run:
        end = run.end(seconds)
        assert end.status == "completed", end
        losses = {rank: run.losses(rank) for rank in range(config.devices)}
        (evaluation,) = run.evaluations()
    assert all(len(of_rank) == config.max_steps for of_rank in losses.values())
    means = [sum(of_step) / config.devices for of_step in zip(*losses.values(), strict=True)]
    return [round(loss, 7) for loss in (*means, evaluation.loss or 0.0)]


@contextmanager
def one_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", threads())
        yield


def threads() -> str:
    """Of each rank: as many wherever the files are made."""
    return os.environ.get("OMP_NUM_THREADS", "1")


def arithmetic(backend: str) -> dict[str, Any]:
    """The vectors that the processor has, as PyTorch names them, threads, and versions."""
    packages = [*BACKENDS[backend].packages, "numpy"]
    program = f"from importlib.metadata import version; print(*map(version, {packages}))"
    python = interpreter_of(backend) or sys.executable
    versions = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    return {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "threads": threads(),
        **dict(zip(packages, versions, strict=True)),
    }


BUILTIN = [name for name, backend in BACKENDS.items() if backend.builtin]


@pytest.mark.parametrize(
    "model", [*QUICK[1:], *(pytest.param(name, marks=pytest.mark.by_hand) for name in ["mlp", *SLOW])]
)
@pytest.mark.parametrize(
    "backend",
    # What is quick of the others is held against PyTorch's curve, or another number of ranks'.
    [
        pytest.param(name, marks=() if name in ("torch-ddp", "jax-sharding", "mxnet-gluon") else pytest.mark.by_hand)
        for name in BUILTIN
    ],
)
def test_the_losses_are_those_of_the_file(backend: str, model: str, tmp_path: Path) -> None:
    golden, config = json.loads((GOLDEN / f"{backend}.json").read_text()), configured(backend, model)
    note = f"{backend}.json was made on {golden[MADE_ON]}; this is {arithmetic(backend)}"
    assert_close(curve(config, tmp_path), golden[model], in_training(config), name=model, note=note)


def main() -> None:
    """Write the files anew."""
    GOLDEN.mkdir(exist_ok=True)
    for backend in sys.argv[1:] or BUILTIN:
        found: dict[str, Any] = {MADE_ON: arithmetic(backend)}
        with tempfile.TemporaryDirectory() as directory:
            found |= {model: curve(configured(backend, model), Path(directory), 1200) for model in IMAGE_MODELS}
        lines = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in found.items())
        (GOLDEN / f"{backend}.json").write_text(f"{{\n{lines}\n}}\n")
        print(backend, "written")


if __name__ == "__main__":
    main()
