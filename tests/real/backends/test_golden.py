"""The first losses of every backend, as they were when somebody last looked at them: `golden/<backend>.json`.

A change that is meant to leave the numbers alone leaves these alone. One that is not is accepted with
`python -m tests.real.backends.test_golden [BACKEND…]`, which writes them anew, and shows in the diff.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import launched
from tests.kit.model_tasks import IMAGE_MODELS
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

GOLDEN = Path(__file__).with_name("golden")
STEPS = 20
CONFIG = RunConfig(
    platform="cpu", epochs=1, max_steps=STEPS, weight_decay=1e-3, schedule="linear", warmup_steps=5, gradient_clip=5.0
)
QUICK = ["mlp", "net"]
SLOW = ["convnet", "resnet18"]


def curve(backend: str, model: str, runs_dir: Path) -> list[float]:
    """The mean losses over the devices of a real run, and the test loss at its end."""
    # DataParallel has one device on the CPU.
    devices = 1 if backend == "torch-dp" else 2
    steps = 4 if model == "resnet18" else STEPS
    config = msgspec.structs.replace(CONFIG, backend=backend, model=model, devices=devices, max_steps=steps)
    with launched(config, runs_dir) as run:
        end = run.end(170)
        assert end.status == "completed", end
        losses = {rank: run.losses(rank) for rank in range(devices)}
        (evaluation,) = run.evaluations()
    assert all(len(of_rank) == steps for of_rank in losses.values())
    means = [sum(of_step) / devices for of_step in zip(*losses.values(), strict=True)]
    return [round(loss, 6) for loss in (*means, evaluation.loss or 0.0)]


BUILTIN = [name for name, backend in BACKENDS.items() if backend.builtin]


@pytest.mark.parametrize(
    "model", [*QUICK[1:], *(pytest.param(name, marks=pytest.mark.nightly) for name in ["mlp", *SLOW])]
)
@pytest.mark.parametrize(
    "backend",
    # What is quick of the others is held against PyTorch's curve, or another number of ranks'.
    [
        pytest.param(name, marks=() if name in ("torch-ddp", "jax-sharding", "mxnet-gluon") else pytest.mark.nightly)
        for name in BUILTIN
    ],
)
def test_the_losses_are_those_of_the_file(backend: str, model: str, tmp_path: Path) -> None:
    golden = json.loads((GOLDEN / f"{backend}.json").read_text())
    losses = curve(backend, model, tmp_path)
    # Another processor rounds otherwise, which grows from step to step: to 0.4 % from AVX-512 to AVX2.
    assert losses[:2] == pytest.approx(golden[model][:2], rel=2e-3, abs=2e-4)
    assert losses[2:] == pytest.approx(golden[model][2:], rel=1e-2, abs=1e-3)


def main() -> None:
    """Write the files anew."""
    GOLDEN.mkdir(exist_ok=True)
    for backend in sys.argv[1:] or BUILTIN:
        with tempfile.TemporaryDirectory() as directory:
            curves = {model: curve(backend, model, Path(directory)) for model in IMAGE_MODELS}
        lines = ",\n".join(f'  "{model}": {json.dumps(losses)}' for model, losses in curves.items())
        (GOLDEN / f"{backend}.json").write_text(f"{{\n{lines}\n}}\n")
        print(backend, "written")


if __name__ == "__main__":
    main()
