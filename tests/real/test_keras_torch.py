"""Runs of keras-torch: a Keras model in DistributedDataParallel, one process per device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.kit import ROOT
from tests.kit.harness import Watched, launched
from tests.kit.reported import values
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Phase, RunEnded, Sharding
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.launch import resume

CONFIG = RunConfig(backend="keras-torch", platform="cpu", devices=2, checkpoint_every=1)
SHORT = msgspec.structs.replace(CONFIG, model="mlp", epochs=2)

LOAD = """
import keras, numpy, sys
model = keras.saving.load_model(sys.argv[1])
assert "tuiapp.trainers.frameworks" not in sys.modules
with numpy.load(sys.argv[2]) as stored:
    small, labels = stored["x_test"], stored["y_test"]
images = numpy.pad(small.repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))[..., None] * (255 / 16)
print((model.predict(images, verbose=0).argmax(1) == labels).mean())
"""
"""Loads a model in plain Keras, and prints its accuracy on the digits."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A run that went through."""
    with launched(SHORT, tmp_path_factory.mktemp("finished")) as run:
        run.end()
        run.wait_gone()
    return run


def test_a_run_from_first_to_last_event(finished: Watched) -> None:
    end, plan = finished.end(), make_plan(SHORT)
    assert end.status == "completed", end
    assert finished.steps_of(0) == finished.steps_of(1) == list(range(1, plan.total_steps + 1))
    evaluations = finished.evaluations()
    assert [(one.step, one.examples) for one in evaluations] == [
        (epoch * plan.steps_per_epoch, 360) for epoch in (1, 2)
    ]
    assert end.summary.test_accuracy == evaluations[-1].accuracy >= 0.9
    for rank in (0, 1):
        phases = [phase.phase for phase in finished.of(Phase) if phase.rank == rank]
        assert phases == ["preparing", *["training", "evaluating", "checkpointing"] * 2, "done"]
        assert (finished.run.rank(rank) / "stderr.log").read_text() == ""
    assert {event.array for event in finished.of(Sharding)} == {
        "batch",
        "labels",
        "parameter fc1/kernel",
        "optimizer exp_avg of fc1/kernel",
        "optimizer exp_avg_sq of fc1/kernel",
    }


def test_plain_keras_loads_what_was_evaluated_last_with_another_framework(finished: Watched) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, finished.run.export / "model.keras", ROOT / "trainers/sources/digits.npz"],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=True,
    )
    # Pixels differ by a rounding to whole numbers.
    assert float(loaded.stdout) == pytest.approx(finished.end().summary.test_accuracy, abs=0.01)


@pytest.mark.by_hand
@pytest.mark.timeout(600)
def test_a_resumed_run_goes_on_bit_for_bit(runs_dir: Path) -> None:
    # Dropout and BatchNorm differ from rank to rank, and a schedule from step to step.
    config = msgspec.structs.replace(CONFIG, model="convnet", epochs=2, schedule="cosine", eval_every=2)
    with launched(config, runs_dir) as run:
        assert run.end(300).status == "completed"
        run.wait_gone()
        before = len(run.events)
        shutil.rmtree(run.run.checkpoints / "step-00000058")
        assert resume(run.run).step == 29
        run.wait(RunEnded, lambda end: end is not run.events[before - 1], 300)
        attempts = run.events[:before], run.events[before:]

        def losses(attempt: int, rank: int) -> list[float | None]:
            return values(attempts[attempt], LOSS, rank)

        for rank in (0, 1):
            assert len(losses(0, rank)) == 58
            assert losses(1, rank) == losses(0, rank)[29:]
        assert losses(0, 0) != losses(0, 1)
        first, second = run.evaluations()
        assert (first.step, first.loss, first.accuracy) == (second.step, second.loss, second.accuracy)
        run.wait_gone()
