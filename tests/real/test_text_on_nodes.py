"""A language model on two nodes, which are agents on the loopback interface: the curve of one device, resumed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import Watched, launched, resumed
from tests.kit.nodes import agent
from tests.kit.reported import values
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import Metrics, Predictions, RankStarted
from tuiapp.trainers.contract.metrics import SKIPPED, TEST_LOSS

pytestmark = [pytest.mark.by_hand, pytest.mark.timeout(600)]

CONFIG = RunConfig(
    model="gpt-small", dataset="shakespeare", context=32, platform="cpu", devices=1, global_batch_size=8,
    optimizer="sgd", learning_rate=0.05, gradient_clip=1.0, epochs=1000, eval_every=0, checkpoint_every=0, seed=3,
)  # fmt: skip
NODES = {"launcher": "join", "nodes": 2, "devices": 2, "network": "lo"}
END_S = 300.0


def _completed(run: Watched) -> None:
    assert (end := run.end(END_S)).status == "completed", end
    run.wait_gone()


def _losses(run: Watched) -> list[list[float]]:
    return [run.losses(rank) for rank in range(2)]


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("backend", ["keras-jax", "keras-torch", "jax-sharding", "torch-ddp"])
def test_it_has_the_curve_of_one_device_and_goes_on_bit_for_bit(runs_dir: Path, backend: str, precision: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend)
    two_nodes = msgspec.structs.replace(config, precision=precision, **NODES)
    with launched(two_nodes, runs_dir) as run, agent(run):
        run.wait(Metrics, seconds=END_S)
        mailbox.send(run.run.commands, "stop")
        assert run.end(END_S).status == "stopped"
        stopped = run.last_step(0)
        run.wait_gone()
        first = _losses(run)
        with resumed(run.run, msgspec.structs.replace(two_nodes, max_steps=stopped + 6)) as second, agent(second):
            _completed(second)
            again = _losses(second)
    with launched(msgspec.structs.replace(two_nodes, max_steps=stopped + 6), runs_dir) as straight, agent(straight):
        _completed(straight)
    wanted = np.array(_losses(straight))
    assert sorted((event.rank, event.node) for event in straight.of(RankStarted)) == [(0, 0), (1, 1)]
    assert first == wanted[:, :stopped].tolist()
    assert again == wanted[:, stopped:].tolist()
    assert second.of(Predictions)[-1].samples == straight.of(Predictions)[-1].samples

    with launched(msgspec.structs.replace(config, max_steps=stopped + 6), runs_dir) as alone:
        _completed(alone)
    # That of one device is in float32.
    within = in_training(two_nodes)
    assert_close(wanted.mean(axis=0), alone.losses(0), within)
    found, expected = (values(one.of(Metrics), TEST_LOSS)[-1] for one in (straight, alone))
    assert_close(found, expected, within)
    assert values(straight.of(Metrics), SKIPPED)[-1:] == ([0] if precision == "float16" else [])
