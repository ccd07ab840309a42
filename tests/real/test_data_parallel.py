"""Splitting the global batch changes nothing, nor does profiling."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import MLP, launched
from tests.kit.recorder import JAX_BACKENDS
from tests.kit.reported import Evaluation
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import COMMUNICATION, HOST, KERNELS, Profile

pytestmark = pytest.mark.nightly


CONFIG = RunConfig(
    model="mlp", platform="cpu", optimizer="sgd", learning_rate=0.05, epochs=2, max_steps=30, schedule="cosine"
)
NET: dict[str, Any] = {"model": "net", "learning_rate": 0.005, "momentum": 0.0}


"""Slowly: the digits' pixels come in blocks of equal ones, and where two are largest in a pooling window rounding
decides which of them gets the gradient."""


def _curve(runs_dir: Path, devices: int, **changes: Any) -> tuple[list[float], Evaluation]:
    """The mean loss over the ranks, step by step, and the evaluation at the end."""
    with launched(msgspec.structs.replace(CONFIG, devices=devices, **changes), runs_dir) as run:
        assert run.end(300).status == "completed"
        curves = [run.losses(rank) for rank in range(devices)]
        return [sum(losses) / devices for losses in zip(*curves, strict=True)], run.evaluations()[-1]


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("backend", ["torch-ddp", pytest.param("keras-torch", marks=pytest.mark.by_hand)])
def test_any_number_of_ranks_gives_the_same_curve(runs_dir: Path, backend: str, devices: int) -> None:
    one, result_of_one = _curve(runs_dir, 1, backend=backend)
    many, result_of_many = _curve(runs_dir, devices, backend=backend)
    assert len(one) == len(many) == 30
    assert_close(many, one, in_training(CONFIG))
    assert many[-1] < 0.9 * many[0]
    assert (result_of_one.examples, result_of_one.accuracy) == (result_of_many.examples, result_of_many.accuracy)


@pytest.mark.by_hand
def test_synchronized_batch_norm_sees_the_global_batch(runs_dir: Path) -> None:
    one, result_of_one = _curve(runs_dir, 1, **NET)
    two, result_of_two = _curve(runs_dir, 2, **NET, sync_batch_norm=True)
    apart, result_apart = _curve(runs_dir, 2, **NET)
    within = in_training(msgspec.structs.replace(CONFIG, **NET))
    assert_close(two, one, within)
    without = max(abs(a - b) for a, b in zip(one, apart, strict=True))
    print(f"\nwithout synchronized statistics {without:.1e} from the curve of 1 rank")
    assert without > 10 * within
    # The running statistics too.
    assert_close(result_of_two.loss, result_of_one.loss, within)
    assert abs((result_apart.loss or 0) - (result_of_one.loss or 0)) > within


@pytest.fixture
def umask() -> Iterator[None]:
    """No umask at all."""
    before = os.umask(0)
    yield
    os.umask(before)


BACKENDS = ["torch-ddp", "torch-fsdp", "torch-dp", "keras-torch", *JAX_BACKENDS]


@pytest.mark.parametrize("backend", mostly_by_hand(BACKENDS, "torch-ddp", "jax-sharding"))
def test_every_rank_profiles_the_same_steps_and_training_goes_on(backend: str, runs_dir: Path, umask: None) -> None:
    devices = 1 if backend == "torch-dp" else 2
    config = msgspec.structs.replace(MLP, backend=backend, devices=devices, epochs=6)
    with launched(config, runs_dir) as run:
        sidecars.send_command(run.run.commands, "profile", 5)
        end = run.end(170)
        found = run.of(Profile)
        assert sorted(one.rank for one in found) == list(range(devices))
        assert {(one.step, one.steps) for one in found} == {(found[0].step, 5)}
        assert end.status == "completed"
        for one in found:
            assert sum(one.spent.values()) == pytest.approx(one.seconds)
            assert one.spent[KERNELS] > 0
            assert one.spent[HOST] < one.seconds
            assert (one.spent[COMMUNICATION] > 0) == (devices > 1)
            assert len(one.largest) == 10
            # A compiled step's memory; torch compiles none, and tells no peak on the CPU.
            assert (one.step_memory is not None) == (backend in JAX_BACKENDS)
            assert one.peak_bytes is None
            assert one.process_peak_bytes is None
            trace = json.loads(gzip.decompress((run.run.path / one.trace).read_bytes()))
            names = {event.get("name") for event in trace["traceEvents"]}
            assert names & {operation.name for operation in one.largest}
        # Each step is reported, those that were profiled too.
        assert run.steps_of(0) == list(range(1, end.summary.steps + 1))
        run.wait_gone()
        assert [path.name for path in run.run.export.iterdir()]
        assert [path.name for path in run.run.checkpoints.iterdir()]
    # Whatever the umask, and whoever wrote it.
    open_to_others = {str(path): mode for path in runs_dir.rglob("*") if (mode := path.lstat().st_mode & 0o077)}
    assert not open_to_others
