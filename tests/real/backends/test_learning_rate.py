"""A rate that is given for another global batch makes the steps of the scaled one, bit for bit, on every backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.kit.harness import launched
from tests.kit.recorder import ONE_PROCESS, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.metrics import LEARNING_RATE

pytestmark = pytest.mark.nightly

SCALED = RunConfig(
    model="mlp", platform="cpu", devices=2, global_batch_size=64, max_steps=8, optimizer="sgd", schedule="cosine",
    warmup_steps=3, learning_rate=0.1, checkpoint_every=0,
)  # fmt: skip
GIVEN = replace(SCALED, learning_rate=0.025, learning_rate_for=16)
ELSEWHERE = [name for name, backend in BACKENDS.items() if backend.builtin and name not in ONE_PROCESS]


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "jax-sharding"))
def test_one_process_makes_the_steps_of_the_scaled_rate(backend: str) -> None:
    wanted, told = (train(replace(config, backend=backend)) for config in (SCALED, GIVEN))
    assert max(step.learning_rate for step in told.steps) == pytest.approx(0.1)
    assert [step.learning_rate for step in told.steps] == [step.learning_rate for step in wanted.steps]
    assert told.losses() == wanted.losses()


@pytest.mark.parametrize("backend", mostly_by_hand(ELSEWHERE, "torch-ddp"))
def test_ranks_make_the_steps_of_the_scaled_rate(backend: str, tmp_path: Path) -> None:
    devices = 1 if backend == "torch-dp" else 2
    curves = []
    for config in (SCALED, GIVEN):
        with launched(replace(config, backend=backend, devices=devices), tmp_path) as run:
            assert run.end(170).status == "completed"
            # What the journal says is what was used.
            rates = [rate for report in run.reports(0) for rate in report.values[LEARNING_RATE]]
            curves.append((rates, run.losses(0)))
    assert curves[0] == curves[1]
