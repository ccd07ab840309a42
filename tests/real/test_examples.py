"""The scripts that users start from, and the handbook's lines that take a model along, as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuiapp.examples
from tests.kit import ROOT
from tests.kit.close import assert_close, in_training
from tests.kit.harness import END_S, Watched, launched
from tests.kit.mxnet_environment import interpreter_of
from tests.kit.own_scripts import curve, saved_then_stopped, the_run
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly


EXAMPLES = Path(tuiapp.examples.__file__).parent


def run(runs_dir: Path, directory: Path, name: str, *words: str) -> Watched:
    """Runs an example for one epoch in a directory."""
    command = [sys.executable, "-m", "tuiapp", "run", str(EXAMPLES / name), "--json", "--runs-dir", str(runs_dir)]
    ended = subprocess.run(
        [*command, *words, "--set", "platform=cpu", "--", "--epochs", "1"],
        cwd=directory, capture_output=True, text=True, timeout=END_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["status"] == "completed"
    return the_run(runs_dir)


def test_ddp_digits(runs_dir: Path, tmp_path: Path) -> None:
    watched = run(runs_dir, tmp_path, "ddp_digits.py", "--set", "devices=2")
    for rank in (0, 1):
        losses = curve(watched, rank, "loss")
        assert max(losses) == 22
        assert losses[22] < 1 < 2 < losses[1]  # type: ignore[operator]


def test_flax_loop(runs_dir: Path, tmp_path: Path) -> None:
    losses = curve(run(runs_dir, tmp_path, "flax_loop.py", "--set", "processes=one"), 0, "loss")
    assert max(losses) == 44
    assert losses[44] < 1 < 2 < losses[1]  # type: ignore[operator]


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_fit(runs_dir: Path, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    watched = run(runs_dir, tmp_path, "keras_fit.py", "--set", "processes=one")
    assert max(curve(watched, 0, "loss")) == 45
    assert curve(watched, 0, "val/accuracy")[45] > 0.2  # type: ignore[operator]


@pytest.mark.by_hand
def test_huggingface_tiny(runs_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    watched = run(runs_dir, tmp_path, "huggingface_tiny.py", "--set", "devices=2")
    for rank in (0, 1):
        assert list(curve(watched, rank, "loss")) == [5, 10, 15, 20, 25, 30]
        assert list(curve(watched, rank, "eval/loss")) == [32]


@pytest.mark.by_hand
def test_huggingface_tiny_saves_and_stops(runs_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = RunConfig(
        backend="script", script=str(EXAMPLES / "huggingface_tiny.py"), arguments="--epochs 100000",
        platform="cpu", devices=2, working_directory=str(tmp_path),
    )  # fmt: skip
    with launched(config, runs_dir) as watched:
        _, last = saved_then_stopped(watched, lambda path: (tmp_path / path / "model.safetensors").exists())
    assert {path.name for path in (tmp_path / "huggingface_tiny").iterdir()} >= {f"checkpoint-{last}"}


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
