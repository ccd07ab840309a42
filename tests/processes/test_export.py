"""README's lines that take a trained model along: run as they stand, they give a model as good as the run's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.processes.harness import launched
from trainers.config.run_config import RunConfig
from trainers.data import datasets

README = Path(__file__).parents[2] / "README.md"

LOGITS = {
    "torch": "import torch; x = torch.from_numpy(x).permute(0, 3, 1, 2); logits = model.eval()(x).detach().numpy()",
    "flax": "logits = model(x, train=False)",
    "keras": "logits = keras.ops.convert_to_numpy(model(x, training=False))",
}
"""What the test does with the model that README's lines have made."""


@pytest.mark.parametrize(
    ("backend", "framework", "elsewhere"),
    [
        ("torch-ddp", "torch", "torch"),
        pytest.param("jax-pmap", "flax", "jax", marks=pytest.mark.slow),
        # Trained with one of Keras' backends, loaded with the other.
        pytest.param("keras-torch", "keras", "jax", marks=pytest.mark.slow),
        pytest.param("jax-sharding", "flax", "jax", marks=pytest.mark.slow),
        pytest.param("torch-dp", "torch", "torch", marks=pytest.mark.slow),
        pytest.param("keras-jax", "keras", "torch", marks=pytest.mark.slow),
    ],
)
def test_the_model_is_loaded_as_readme_says(
    backend: str, framework: str, elsewhere: str, runs_dir: Path, tmp_path: Path
) -> None:
    devices = 1 if backend == "torch-dp" else 2
    config = RunConfig(backend=backend, platform="cpu", devices=devices, epochs=2, max_steps=40, checkpoint_every=0)
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        evaluation = run.evaluations()[-1]
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    (lines,) = (block for block in blocks if f"{framework}" in block.splitlines()[0] and "DIR" in block)
    assert sum(line != "" for line in lines.splitlines()) == 3
    arrays = datasets.load("digits")
    np.savez(tmp_path / "test.npz", x=arrays.x_test.astype(np.float32) / 255)
    program = "\n".join(
        [
            lines.replace("DIR", str(run.run.path)),
            f"import numpy as np; x = np.load({str(tmp_path / 'test.npz')!r})['x']",
            LOGITS[framework],
            f"np.save({str(tmp_path / 'logits.npy')!r}, logits)",
        ]
    )
    environment = {**os.environ, "KERAS_BACKEND": elsewhere, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, stdout=subprocess.DEVNULL)
    logits = np.load(tmp_path / "logits.npy").astype(np.float64)
    right = (logits.argmax(1) == arrays.y_test).mean()
    losses = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) - (
        logits[np.arange(len(logits)), arrays.y_test] - logits.max(1)
    )
    assert right == pytest.approx(evaluation.accuracy)
    assert losses.mean() == pytest.approx(evaluation.loss, rel=1e-4)
    assert evaluation.accuracy > 0.5
