"""`tuiapp env`: which environment each backend uses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.kit.command_line import Command
from tests.kit.isolated import isolated
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.settings import settings_path


@pytest.fixture
def jax_python(tmp_path: Path) -> str:
    """Named by the settings for JAX; it lacks Flax and Optax."""
    python = isolated(tmp_path / "jax", "jax", "numpy", "msgspec")
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text(f'[environments]\njax = "{python}"\n')
    return python


def test_each_backends_environment(tuiapp: Command, jax_python: str) -> None:
    found = {one["backend"]: one for one in json.loads(tuiapp("env", "list", "--json").out)}
    assert list(found) == list(BACKENDS)
    assert (found["torch-ddp"]["origin"], found["torch-ddp"]["interpreter"]) == ("own", sys.executable)
    assert set(found["torch-ddp"]["versions"]) == {"torch", "numpy"}
    assert found["torch-ddp"]["unavailable"] is None
    assert (found["jax-pmap"]["origin"], found["jax-pmap"]["interpreter"]) == ("settings", jax_python)
    assert found["jax-pmap"]["unavailable"].startswith(f"flax, optax not installed in {jax_python}: ")
    assert found["keras-jax"]["origin"] == "own"


def test_as_a_table(tuiapp: Command, jax_python: str) -> None:
    head, *lines = tuiapp("env").out.splitlines()
    assert head.split() == ["BACKEND", "ENVIRONMENT", "PYTHON", "VERSIONS", "GPUS"]
    (line,) = (number for number, line in enumerate(lines) if line.startswith("jax-pmap "))
    assert f"settings: {jax_python}" in lines[line]
    assert "cannot run: flax, optax not installed" in lines[line + 1]


def test_doctor_says_where_and_warns_of_a_named_one(tuiapp: Command, jax_python: str) -> None:
    found = {one["name"]: one for one in json.loads(tuiapp("doctor", "--json").out)}
    assert found["jax-pmap"]["status"] == "warn"
    assert jax_python in found["jax-pmap"]["detail"]
    assert found["torch-ddp"]["detail"].startswith("can run: PyTorch")
