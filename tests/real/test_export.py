"""The handbook's lines that take a model along: as they stand, they give the run's accuracy on images of bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kit import ROOT
from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.mxnet_environment import interpreter_of
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly

PAGE = ROOT / "tuiapp/manual/models.md"


@pytest.mark.parametrize(
    ("backend", "framework", "elsewhere"),
    [
        ("torch-ddp", "torch", "torch"),
        pytest.param("jax-pmap", "flax", "jax", marks=pytest.mark.by_hand),
        # Trained with one of Keras' backends, loaded with the other.
        pytest.param("keras-torch", "keras", "jax", marks=pytest.mark.by_hand),
        pytest.param("jax-sharding", "flax", "jax", marks=pytest.mark.by_hand),
        pytest.param("torch-dp", "torch", "torch", marks=pytest.mark.by_hand),
        pytest.param("keras-jax", "keras", "torch", marks=pytest.mark.by_hand),
        pytest.param("mxnet-gluon", "mxnet", "", marks=pytest.mark.by_hand),
    ],
)
def test_the_model_is_loaded_as_the_handbook_says(
    backend: str, framework: str, elsewhere: str, runs_dir: Path, tmp_path: Path
) -> None:
    devices = 1 if backend == "torch-dp" else 2
    config = RunConfig(backend=backend, platform="cpu", devices=devices, epochs=2, max_steps=40, checkpoint_every=0)
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        evaluation = run.evaluations()[-1]
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (lines,) = (block for block in blocks if f"{framework}" in block.splitlines()[0] and "DIR" in block)
    arrays = datasets.load(find_dataset("digits"))
    assert arrays.x_test.dtype == np.uint8
    np.save(tmp_path / "images.npy", arrays.x_test)
    program = "\n".join(
        [
            f"import numpy as np; images = np.load({str(tmp_path / 'images.npy')!r})",
            lines.replace("DIR", str(run.run.path)),
            f"np.save({str(tmp_path / 'logits.npy')!r}, np.asarray(logits))",
        ]
    )
    environment = {**os.environ, "KERAS_BACKEND": elsewhere, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    python = interpreter_of(backend) or sys.executable
    subprocess.run([python, "-c", program], check=True, env=environment, stdout=subprocess.DEVNULL)
    logits = np.load(tmp_path / "logits.npy").astype(np.float64)
    right = (logits.argmax(1) == arrays.y_test).mean()
    losses = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) - (
        logits[np.arange(len(logits)), arrays.y_test] - logits.max(1)
    )
    assert right == pytest.approx(evaluation.accuracy)
    assert_close(losses.mean(), evaluation.loss, in_training(config))
    assert evaluation.accuracy > 0.5
