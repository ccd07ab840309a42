"""The benchmark beside bare loops of the frameworks: both sides compute in the same way."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from tests.bench import race
from tests.bench.bare import on_torch
from tests.bench.bare.common import Race
from tests.kit.recorder import Recorder
from tests.kit.variants import mostly_by_hand
from tuiapp.cli import build_parser
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax import devices as jax_devices
from tuiapp.trainers.frameworks.jax import models as flax_models
from tuiapp.trainers.frameworks.jax import state as flax_state
from tuiapp.trainers.frameworks.torch import ranks as torch_ranks
from tuiapp.trainers.frameworks.torch.compile import uses_cuda_graphs
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.verbs.sources import read_source

pytestmark = pytest.mark.nightly

OPTIONS = argparse.Namespace(epochs={"net": 3}, batch=24, platform="cpu", precision="bfloat16", compile=True)
PRECISIONS = ["float32", "tf32", "bfloat16"]


@pytest.mark.parametrize("backend", ["torch-ddp", "torch-dp", "keras-torch", "jax-sharding", "jax-pmap", "keras-jax"])
def test_both_sides_are_given_the_same(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    settings = race.settings_of(OPTIONS, 1, "net")
    monkeypatch.setattr(sys, "argv", race.bare_command(backend, settings, "arrays.npz")[2:])
    bare = Race.from_command_line()
    given = build_parser().parse_args(race.our_command(backend, settings, "digits", "runs")[4:])
    ours = read_source(given.source, given.settings)
    taken = [key for key in settings if key != "compile" or "compile" in BACKENDS[backend].keys]
    assert {key: getattr(ours, key) for key in taken} == {key: getattr(bare, key) for key in taken}
    assert (ours.backend, ours.precision, bare.compile) == (backend, "bfloat16", True)


@pytest.fixture
def _arithmetic() -> Iterator[None]:
    """Puts PyTorch's settings back."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision()
    yield
    cudnn.allow_tf32, cudnn.benchmark = before[:2]
    torch.set_float32_matmul_precision(before[2])


@pytest.mark.usefixtures("_arithmetic")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_on_torch_both_compute_in_the_same_precision_and_memory_format(platform: str, precision: str) -> None:
    def arithmetic() -> tuple[object, ...]:
        cudnn = torch.backends.cudnn
        return cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision()

    bare = Race("", "net", 1, 3, 24, platform, precision, compile=True)
    config, device = RunConfig(platform=platform, precision=precision, devices=1), torch.device(platform)
    on_torch.set_arithmetic(bare)
    theirs = arithmetic()
    # What each side leaves as it is must not look like what it sets.
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = not theirs[0]
    torch.set_float32_matmul_precision("medium")
    torch_ranks.set_arithmetic(config, cast(Reporter, Recorder()))
    assert arithmetic() == theirs == (precision != "float32", platform == "cuda", theirs[2])
    assert theirs[2] == ("highest" if precision == "float32" else "high")
    assert on_torch.memory_format(bare) == torch_ranks.memory_format(config, device)
    if platform == "cpu":
        a = torch.ones(2, 2)
        with on_torch.autocast(bare):
            found = (a @ a).dtype
        with torch_ranks.autocast(config, device):
            assert (a @ a).dtype == found == (torch.bfloat16 if precision == "bfloat16" else torch.float32)


def test_cuda_graphs_are_for_one_gpu_and_our_own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(backend="torch-ddp", model="net", platform="cuda", devices=1, compile=True)
    without: list[dict[str, Any]] = [
        {"platform": "cpu"},
        {"devices": 2},
        {"sync_batch_norm": True},
        {"model": "py:net.py:build"},
    ]
    assert uses_cuda_graphs(config)
    assert not any(uses_cuda_graphs(replace(config, **changes)) for changes in without)
    compiled: list[bool] = []
    monkeypatch.setattr(on_torch, "compile_model", lambda model, cuda_graphs: compiled.append(cuda_graphs))
    for platform, devices in (("cuda", 1), ("cuda", 2), ("cpu", 1)):
        on_torch.compiled(Race("", "net", devices, 3, 24, platform, "float32", compile=True), torch.nn.Identity())
    assert compiled == [True, False, False]


SPY = """
import sys
sys.argv = sys.argv[1:]
import jax
import {module} as bare
from tuiapp.trainers.frameworks.{framework} import models

def build(*arguments, **options):
    print(jax.config.jax_default_matmul_precision, *(str(getattr(one, "__name__", one)) for one in arguments[-1:]))
    raise SystemExit

models.build = build
bare.main()
"""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("backend", mostly_by_hand(["jax-sharding", "jax-pmap", "keras-jax"], "jax-sharding"))
def test_on_jax_both_compute_in_the_same_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, precision: str
) -> None:
    data = str(tmp_path / "arrays.npz")
    np.savez(data, x_train=np.zeros((4, 28, 28, 1), np.uint8), y_train=np.zeros(4, np.int64), classes=10)
    options = argparse.Namespace(**{**vars(OPTIONS), "precision": precision, "compile": False})
    arguments = race.bare_command(backend, race.settings_of(options, 1, "net"), data)[2:]
    framework = "keras" if backend == "keras-jax" else "jax"
    program = SPY.format(module=arguments[0], framework=framework)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    product, kind = done.stdout.split()
    assert product == jax_devices.PRECISIONS[precision]
    if backend == "keras-jax":
        assert kind == precision
        return
    built: list[Any] = []
    build = flax_models.build

    def spy(name: str, classes: int, dtype: Any) -> Any:
        built.append(dtype)
        return build(name, classes, dtype)

    monkeypatch.setattr(flax_models, "build", spy)
    plan = make_plan(RunConfig(backend=backend, model="net", platform="cpu", devices=1, precision=precision))
    flax_state.create(plan)
    assert [one.__name__ for one in built] == [kind]
    assert kind == ("bfloat16" if precision == "bfloat16" else "float32")


def test_a_bare_loop_of_torch_runs_in_bfloat16(tmp_path: Path) -> None:
    data = str(tmp_path / "arrays.npz")
    np.savez(data, x_train=np.zeros((48, 28, 28, 1), np.uint8), y_train=np.zeros(48, np.int64), classes=10)
    options = argparse.Namespace(**{**vars(OPTIONS), "compile": False})
    command = race.bare_command("torch-dp", race.settings_of(options, 1, "net"), data)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout)["examples_per_second"] > 0


@pytest.mark.by_hand
@pytest.mark.parametrize(
    "backend",
    mostly_by_hand(
        ["torch-ddp", "torch-fsdp", "torch-dp", "jax-sharding", "jax-pmap", "keras-jax", "keras-torch"], "torch-fsdp"
    ),
)
def test_a_bare_loop_trains_a_language_model(backend: str, tmp_path: Path) -> None:
    data, windows = str(tmp_path / "arrays.npz"), np.zeros((24, 16), np.uint8)
    np.savez(data, x_train=windows, y_train=windows, classes=256)
    options = argparse.Namespace(**{**vars(OPTIONS), "compile": False, "epochs": {"gpt-small": 2}, "batch": 12})
    command = race.bare_command(backend, race.settings_of(options, 1, "gpt-small"), data)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout)["examples_per_second"] > 0
