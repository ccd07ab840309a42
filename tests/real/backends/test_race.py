"""The benchmark beside bare loops of the frameworks: both sides compute in the same way."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import cast

import pytest
import torch

from tests.bench import race
from tests.bench.bare import on_torch
from tests.bench.bare.common import Race
from tests.kit.recorder import Recorder
from tuiapp.cli import build_parser
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch import ranks as torch_ranks
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
