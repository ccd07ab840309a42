"""The scripts that users start from, launched by `tuiapp run` as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tuiapp.examples
from tests.kit.harness import END_S, Watched, launched
from tests.kit.own_scripts import curve, saved_then_stopped, the_run
from tuiapp.trainers.config.run_config import RunConfig

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
