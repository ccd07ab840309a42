"""Runs whose ranks take unequal shares of each batch: the gradient is that of the whole batch, whatever they are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.close import assert_close, in_training, rounding
from tests.kit.harness import Watched, launched, resumed
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Alert, Sharding
from tuiapp.trainers.contract.metrics import EXAMPLES, LOSS
from tuiapp.trainers.state.curves import ALL, Curves
from tuiapp.trainers.state.summary import summarise

pytestmark = pytest.mark.nightly

EQUAL = RunConfig(model="mlp", platform="cpu", devices=2, epochs=1, max_steps=20)
"""Of 48 examples; SGD, whose steps are as large as the gradients."""
SGD = msgspec.structs.replace(EQUAL, optimizer="sgd", learning_rate=0.05)
END_S = 300.0


def run_of(config: RunConfig, runs_dir: Path) -> Watched:
    with launched(config, runs_dir) as run:
        assert run.end(END_S).status == "completed"
        run.wait_gone()
    return run


def joined(run: Watched) -> list[float]:
    """The mean loss of each step's whole batch, from the ranks' reports."""
    sums: dict[int, list[float]] = {}
    for event in run.reports():
        assert event.counts is None or set(event.counts) == {1}
        for place, (loss, size) in enumerate(zip(event.values[LOSS], event.values[EXAMPLES], strict=True)):
            assert loss is not None
            assert size is not None
            entry = sums.setdefault(event.first_step + place, [0.0, 0.0])
            entry[0] += loss * size
            entry[1] += size
    return [loss / size for _, (loss, size) in sorted(sums.items())]


def test_three_to_one_is_the_curve_of_equal_shares_and_of_one_device(runs_dir: Path) -> None:
    unequal, equal, one = (
        run_of(msgspec.structs.replace(SGD, **changes), runs_dir) for changes in ({"shares": "3:1"}, {}, {"devices": 1})
    )
    assert read_plan(unequal.run.plan).examples == (36, 12)
    for other in (equal, one):
        assert_close(joined(unequal), joined(other), in_training(SGD))
        assert_close(unequal.evaluations()[0].loss, other.evaluations()[0].loss, in_training(SGD))
        assert unequal.evaluations()[0].examples == other.evaluations()[0].examples
    assert {(event.rank, size) for event in unequal.reports() for size in event.values[EXAMPLES]} == {(0, 36), (1, 12)}
    parts = {
        shard.rank: shard.index[0] for event in unequal.of(Sharding) if event.array == "batch" for shard in event.shards
    }
    assert parts == {0: (0, 36), 1: (36, 48)}

    # What is shown and exported of all ranks together is the batch's, too.
    curves = Curves(by_rank=False)
    curves.fold(unequal.events)
    within = rounding(2, size=3)
    assert_close(curves[ALL, LOSS].means(), joined(unequal), within)
    summary = summarise(unequal.run).summary
    assert_close(summary.loss, joined(unequal)[-1], within)


@pytest.mark.by_hand
def test_a_resumed_run_is_bit_for_bit_that_without_a_stop(runs_dir: Path) -> None:
    # Its Dropout draws numbers.
    config = msgspec.structs.replace(EQUAL, model="convnet", shares="1:3", max_steps=10)
    straight = run_of(config, runs_dir)
    with launched(msgspec.structs.replace(config, max_steps=5), runs_dir) as first:
        assert first.end(END_S).status == "completed"
        first.wait_gone()
        with resumed(first.run, config) as second:
            assert second.end(END_S).status == "completed"
            for rank in range(2):
                assert second.steps_of(rank) == [6, 7, 8, 9, 10]
                assert second.losses(rank) == straight.losses(rank)[5:]


SLOW_RANK = """
import os
import time
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        hidden = nn.Linear(784, 32), nn.BatchNorm1d(32), nn.Dropout()
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, 10))

    def forward(self, x):
        if self.training and os.environ["RANK"] == "1":
            time.sleep(SECONDS * len(x))
        return self.layers(x)

def net(shape, classes):
    return Net()
"""
"""A model that takes rank 1 so many seconds more for each example."""
SLOW_IN_KERAS = """
import os
import time
import keras
from keras import layers

class Slow(layers.Layer):
    def call(self, x, training=False):
        if training and os.environ["RANK"] == "1":
            time.sleep(SECONDS * len(x))
        return x

def net(shape, classes):
    hidden = layers.Flatten(), layers.Dense(32), layers.BatchNormalization(), layers.Dropout(0.5)
    return keras.Sequential([keras.Input(shape), Slow(), *hidden, layers.Dense(classes)])
"""


@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("backend", "net"),
    [
        ("torch-ddp", SLOW_RANK),
        pytest.param("keras-torch", SLOW_IN_KERAS, marks=[pytest.mark.nightly, pytest.mark.timeout(600)]),
    ],
    ids=["torch-ddp", "keras-torch"],
)
def test_a_slow_rank_takes_fewer_examples_measured_once(runs_dir: Path, tmp_path: Path, backend: str, net: str) -> None:
    file = tmp_path / "slow_rank.py"
    file.write_text(net.replace("SECONDS", "0.005"))
    config = msgspec.structs.replace(EQUAL, backend=backend, model=f"py:{file}:net", shares="measured", max_steps=8)
    with launched(msgspec.structs.replace(config, max_steps=4), runs_dir) as first:
        assert first.end(END_S).status == "completed"
        [said] = [alert for alert in first.of(Alert) if alert.kind == "shares"]
        fast, slow = (int(first.reports(rank)[0].values[EXAMPLES][0] or 0) for rank in range(2))
        assert fast + slow == 48
        assert 0 < slow < fast
        assert said.text.startswith(f"of each batch the ranks take {fast}:{slow} examples, as measured")
        first.wait_gone()
        # From then on the same, though no rank is slow any more.
        file.write_text(net.replace("SECONDS", "0"))
        with resumed(first.run, config) as second:
            assert second.end(END_S).status == "completed"
            assert second.reports(0)[-1].values[EXAMPLES][-1] == fast
            assert not [alert for alert in second.of(Alert) if alert.kind == "shares"]
            found = [[*first.losses(rank)[:4], *second.losses(rank)[-4:]] for rank in range(2)]
    # Measuring changes nothing else.
    by_hand = run_of(msgspec.structs.replace(config, shares=f"{fast}:{slow}"), runs_dir)
    assert found == [by_hand.losses(rank) for rank in range(2)]


def measured_with(net: str, runs_dir: Path, tmp_path: Path) -> tuple[tuple[int, int], str]:
    """What two ranks of a model take of 48 examples, as measured, and what the log says."""
    file = tmp_path / "net.py"
    file.write_text(net)
    run = run_of(msgspec.structs.replace(EQUAL, model=f"py:{file}:net", shares="measured", max_steps=2), runs_dir)
    [said] = [alert.text for alert in run.of(Alert) if alert.kind == "shares"]
    first, second = (int(run.reports(rank)[0].values[EXAMPLES][0] or 0) for rank in range(2))
    return (first, second), said


SLOW_AT_FIRST = SLOW_RANK.replace("import time\n", "import time\nend = 0\n").replace(
    "time.sleep(SECONDS * len(x))",
    "global end\n"
    "            end = end or time.perf_counter() + 0.4\n"
    "            if time.perf_counter() < end:\n"
    "                time.sleep(0.0005 * len(x))",
)
"""Rank 1 is slow for 0.4 s, as another program would make it."""


def test_what_slows_a_rank_down_for_a_moment_changes_nothing(runs_dir: Path, tmp_path: Path) -> None:
    found, said = measured_with(SLOW_AT_FIRST, runs_dir, tmp_path)
    assert found == (24, 24)
    assert said.startswith("of each batch the ranks take 24:24 examples, as measured: one takes them ")
    assert said.endswith(" ms; none was over 10% off their mean speed in 9 of 11 rounds")


EXTRA_WORK = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x):
        if self.training and os.environ["RANK"] == "0":
            with torch.no_grad():
                for _ in range(20):
                    self.layers(x)
        return self.layers(x)

def net(shape, classes):
    return Net()
"""
"""A model with which rank 0 computes several times as much."""


def test_a_rank_that_computes_more_takes_fewer(runs_dir: Path, tmp_path: Path) -> None:
    (slow, fast), said = measured_with(EXTRA_WORK, runs_dir, tmp_path)
    assert slow + fast == 48
    assert 3 <= slow <= 16
    assert "mean speed" not in said


TEXT = {"model": "gpt-small", "dataset": "shakespeare", "max_steps": 4, "context": 16}


@pytest.mark.by_hand
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "changes",
    [
        {"backend": "torch-fsdp"},
        {"backend": "keras-torch"},
        {"accumulate": 4},
        {"gradient_clip": 0.1},
        {"devices": 3, "shares": "2:5:1"},
        {"model": "net", "sync_batch_norm": True, "learning_rate": 0.002},
        {"model": "net", "sync_batch_norm": True, "learning_rate": 0.002, "backend": "torch-fsdp"},
        TEXT,
        {**TEXT, "backend": "keras-torch"},
    ],
)
def test_whatever_the_backend(runs_dir: Path, changes: dict[str, object]) -> None:
    config = msgspec.structs.replace(SGD, **changes)
    unequal = run_of(msgspec.structs.replace(config, shares=changes.get("shares", "3:1")), runs_dir)
    equal = run_of(msgspec.structs.replace(config, shares="equal"), runs_dir)
    assert_close(joined(unequal), joined(equal), in_training(config))
    # None of a text, which has no accuracy.
    found, wanted = ([one.loss for one in run.evaluations()] for run in (unequal, equal))
    assert_close(found, wanted, in_training(config))
