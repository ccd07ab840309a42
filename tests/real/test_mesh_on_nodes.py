"""Weights split over the devices of several nodes: agents on the loopback interface, real ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import Watched, launched
from tests.kit.nodes import agent
from tests.kit.user_files import write_data
from tuiapp.trainers.config import memory
from tuiapp.trainers.config.catalog import backends_with
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Held, Predictions, RankStarted, Replicas, Sharding
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.rank.checkpoints import load

pytestmark = [pytest.mark.by_hand, pytest.mark.timeout(600)]

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=4, global_batch_size=144, epochs=2, schedule="cosine", gradient_clip=1.0,
    optimizer="sgd", learning_rate=0.05, momentum=0.9,
)  # fmt: skip
"""9 steps an epoch."""
NODES = {"launcher": "join", "nodes": 2, "network": "lo"}
END_S = 300.0
BACKENDS = pytest.mark.parametrize("backend", backends_with("mesh"))


def _config(backend: str, mesh: str, **changes: object) -> RunConfig:
    return msgspec.structs.replace(CONFIG, backend=backend, mesh=mesh, **changes)


def _losses(run: Watched) -> list[list[float]]:
    """Of each device, step by step."""
    return [run.losses(rank) for rank in range(4)]


def _completed(run: Watched) -> None:
    assert (end := run.end(END_S)).status == "completed", end
    run.wait_gone()


@pytest.mark.parametrize("mesh", ["batch=2,model=2", "batch=1,model=4"], ids=["within", "over both"])
@BACKENDS
def test_two_nodes_train_as_one_machine_with_as_many_devices(runs_dir: Path, backend: str, mesh: str) -> None:
    """Those along "model" within a node, and over both."""
    config = _config(backend, mesh)
    with launched(config, runs_dir) as one:
        _completed(one)
        wanted, wanted_evaluations, [*wanted_predictions] = _losses(one), one.evaluations(), one.of(Predictions)
    with launched(msgspec.structs.replace(config, **NODES), runs_dir) as two, agent(two):
        _completed(two)
    assert len(wanted[3]) == 18
    within = in_training(CONFIG, parts=4)
    assert_close(_losses(two), wanted, within)
    for found, expected in zip(two.evaluations(), wanted_evaluations, strict=True):
        assert (found.step, found.examples) == (expected.step, expected.examples)
        assert found.accuracy == expected.accuracy
        assert_close(found.loss, expected.loss, within)
    assert [event.counts for event in two.of(Predictions)] == [event.counts for event in wanted_predictions]
    assert [(event.replicas, event.differing) for event in two.of(Replicas)] == [(4, [])] * len(two.of(Replicas))
    assert two.of(Replicas)

    assert sorted((event.rank, event.node) for event in two.of(RankStarted)) == [(0, 0), (1, 0), (2, 1), (3, 1)]
    # Each node tells of its own devices, and both together as the one machine does.
    assert sorted((event.rank, *event.held.items()) for event in two.of(Held)) == sorted(
        (event.rank, *event.held.items()) for event in one.of(Held)
    )
    assert _shards(two) == _shards(one)

    saved = [load(list_checkpoints(run.run.checkpoints)[0][0]) for run in (one, two)]
    for before, after in ((saved[0].model, saved[1].model), (saved[0].state, saved[1].state)):
        assert before.keys() == after.keys()
        for name, array in after.items():
            assert_close(array, before[name], within, name=name)
    assert [path.suffix for path in two.run.export.glob("model.*")]


@BACKENDS
def test_nodes_whose_devices_fill_no_row_read_their_own_examples(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Three devices and one: the examples of the second row are read on both nodes."""
    config = _config(
        backend, "batch=2,model=2", dataset=write_data(tmp_path, "mapped"), global_batch_size=30, augment="mixup"
    )
    with launched(config, runs_dir) as one:
        _completed(one)
    monkeypatch.setattr(memory, "RESIDENT_PART", 0.0)
    nodes = {**NODES, "devices_per_node": "3+1"}
    with launched(msgspec.structs.replace(config, **nodes), runs_dir) as two, agent(two):
        _completed(two)
        assert read_plan(two.run.plan).streamed
    assert sorted((event.rank, event.node) for event in two.of(RankStarted)) == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert_close(_losses(two), _losses(one), in_training(config, parts=4))
    assert _shards(two) == _shards(one)


def _shards(run: Watched) -> list[tuple[str, int, list[tuple[int, int]]]]:
    """Which part of each array each device has."""
    return sorted(
        (event.array, shard.rank, [(start, stop) for start, stop in shard.index])
        for event in run.of(Sharding)
        for shard in event.shards
    )
