"""Runs of the JAX backends and of Keras on PyTorch, and weights split over devices, on two nodes: real ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import Watched, launched, resumed
from tests.kit.nodes import agent
from tests.kit.recorder import JAX_BACKENDS
from tests.kit.user_files import write_data
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config import memory
from tuiapp.trainers.config.catalog import BACKENDS, backends_with
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Held, Predictions, RankStarted, Replicas, Sharding
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.contract.metrics import LOSS
from tuiapp.trainers.rank.checkpoints import load

pytestmark = [pytest.mark.by_hand, pytest.mark.timeout(600)]


ONE_MACHINE = RunConfig(
    model="net", platform="cpu", devices=4, global_batch_size=144, epochs=1, optimizer="sgd", learning_rate=0.002,
    checkpoint_every=1,
)  # fmt: skip


"""9 steps an epoch. Gradients are added up in another order on two nodes; Adam or a higher rate makes more of it."""


NODES = {"launcher": "join", "nodes": 2, "network": "lo"}
END_S = 300.0
EACH = pytest.mark.parametrize("backend", mostly_by_hand([*JAX_BACKENDS, "keras-torch", "torch-fsdp"], "jax-sharding"))


def on(backend: str, **changes: object) -> RunConfig:
    return msgspec.structs.replace(ONE_MACHINE, backend=backend, **changes)


def losses(run: Watched) -> np.ndarray:
    """float [devices, steps]; what was done anew counts."""
    found: dict[tuple[int, int], float | None] = {}
    for event in run.reports():
        found |= {(event.rank, step): loss for step, loss in enumerate(event.values[LOSS], start=event.first_step)}
    steps = max(step for _, step in found)
    ranks = range(run.started.world_size)
    return np.array([[found[rank, step] for step in range(1, steps + 1)] for rank in ranks], float)


@EACH
def test_two_nodes_make_the_same_steps_as_one_machine_with_as_many_devices(runs_dir: Path, backend: str) -> None:
    with launched(on(backend), runs_dir) as one, launched(on(backend, **NODES), runs_dir) as two, agent(two):
        for run in (one, two):
            end = run.end(END_S)
            assert end.status == "completed", end
            run.wait_gone()
        within = in_training(ONE_MACHINE)
        assert_close(losses(two), losses(one), within)

        [wanted], [found] = one.evaluations(), two.evaluations()
        assert (found.step, found.examples) == (wanted.step, wanted.examples)
        assert_close(found.loss, wanted.loss, within)
        assert found.accuracy == wanted.accuracy
        [wanted_predictions], [predictions] = one.of(Predictions), two.of(Predictions)
        assert predictions.counts == wanted_predictions.counts
        assert [one.number for one in predictions.worst] == [one.number for one in wanted_predictions.worst]

        # Over both nodes; where each has a part of the weights, there are no replicas.
        for run in (one, two):
            compared = [(each.step, each.replicas, each.differing) for each in run.of(Replicas)]
            assert compared == ([] if BACKENDS[backend].splits_state else [(9, 4, [])])

        # Each device is reported by the process of its own node.
        assert sorted((event.rank, event.node) for event in two.of(RankStarted)) == [(0, 0), (1, 0), (2, 1), (3, 1)]
        parts = sorted(
            (shard.rank, shard.index[0])
            for event in two.of(Sharding)
            if event.array == "batch"
            for shard in event.shards
        )
        size = parts[0][1][1]
        assert parts == [(rank, (rank * size, (rank + 1) * size)) for rank in range(4)]

        saved = [load(list_checkpoints(run.run.checkpoints)[0][0]) for run in (one, two)]
        for wanted_arrays, arrays in ((saved[0].model, saved[1].model), (saved[0].state, saved[1].state)):
            assert {name: array.shape for name, array in arrays.items()} == {
                name: array.shape for name, array in wanted_arrays.items()
            }
            for name, array in arrays.items():
                assert_close(array, wanted_arrays[name], within, name=name)


@EACH
def test_a_run_moves_from_one_machine_to_two_nodes_and_back(runs_dir: Path, backend: str) -> None:
    with launched(on(backend, devices=2, epochs=3), runs_dir) as straight:
        assert straight.end(END_S).status == "completed"
    with launched(on(backend, devices=2), runs_dir) as run:
        assert run.end(END_S).status == "completed"
        run.wait_gone()
        with resumed(run.run, on(backend, devices=2, epochs=2, **NODES)) as second, agent(second):
            assert second.end(END_S).status == "completed"
            assert (second.started.resumed_from, {event.node for event in second.of(RankStarted)}) == (9, {0, 1})
            second.wait_gone()
        with resumed(run.run, on(backend, devices=2, epochs=3)) as third:
            assert third.end(END_S).status == "completed"
            assert third.started.resumed_from == 18
        within = in_training(ONE_MACHINE)
        assert_close(losses(run), losses(straight), within)
        assert_close([one.loss for one in run.evaluations()], [one.loss for one in straight.evaluations()], within)


@pytest.mark.parametrize("backend", mostly_by_hand(JAX_BACKENDS, "jax-sharding"))
def test_a_stop_on_request_after_the_same_step_on_both_nodes(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    # As on many a cluster: nobody listens there.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with launched(on(backend, epochs=1000, **NODES), runs_dir) as run, agent(run):
        run.at_step(3)
        sidecars.send_command(run.run.commands, "stop")
        end = run.end()
        assert end.status == "stopped"
        assert not end.reason.endswith("at once")
        assert run.last_step(0) == run.last_step(3) == end.summary.steps
        [newest, *_] = list_checkpoints(run.run.checkpoints)[0]
        assert newest.manifest.step == end.summary.steps
        run.wait_gone()


MESH = RunConfig(
    model="mlp", platform="cpu", devices=4, global_batch_size=144, epochs=2, schedule="cosine", gradient_clip=1.0,
    optimizer="sgd", learning_rate=0.05, momentum=0.9,
)  # fmt: skip


"""9 steps an epoch."""


WITH_MESH = pytest.mark.parametrize("backend", backends_with("mesh"))


def _config(backend: str, mesh: str, **changes: object) -> RunConfig:
    return msgspec.structs.replace(MESH, backend=backend, mesh=mesh, **changes)


def _losses(run: Watched) -> list[list[float]]:
    """Of each device, step by step."""
    return [run.losses(rank) for rank in range(4)]


def _completed(run: Watched) -> None:
    assert (end := run.end(END_S)).status == "completed", end
    run.wait_gone()


@pytest.mark.parametrize("mesh", ["batch=2,model=2", "batch=1,model=4"], ids=["within", "over both"])
@WITH_MESH
def test_two_nodes_train_as_one_machine_with_as_many_devices(runs_dir: Path, backend: str, mesh: str) -> None:
    """Those along "model" within a node, and over both."""
    config = _config(backend, mesh)
    with launched(config, runs_dir) as one:
        _completed(one)
        wanted, wanted_evaluations, [*wanted_predictions] = _losses(one), one.evaluations(), one.of(Predictions)
    with launched(msgspec.structs.replace(config, **NODES), runs_dir) as two, agent(two):
        _completed(two)
    assert len(wanted[3]) == 18
    within = in_training(MESH, parts=4)
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


@WITH_MESH
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
