"""Options that are built apart, all at once, in real processes: stopped in the middle, a run goes on bit for bit."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit.harness import Watched, launched, resumed
from tests.kit.nodes import agent
from tests.real.backends.test_options_together import EVERYTHING
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import InitialWeights, Metrics
from tuiapp.trainers.contract.manifest import MODEL_FILE, list_checkpoints
from tuiapp.trainers.rank.checkpoints import load

pytestmark = [pytest.mark.by_hand, pytest.mark.timeout(900)]

END_S = 300.0
IMAGES = replace(EVERYTHING, devices=2, epochs=8, max_steps=0, accumulate=4, ema=0.9, early_stop=2)
TEXT = replace(
    IMAGES, backend="torch-fsdp", model="gpt-small", dataset="shakespeare", context=16, augment="off", normalize="",
    epochs=1, max_steps=20, global_batch_size=8, early_stop=0,
)  # fmt: skip
NODES = {"launcher": "join", "nodes": 2, "network": "lo"}


@pytest.mark.parametrize(
    "config",
    [replace(IMAGES, backend="jax-pmap", **NODES), replace(IMAGES, backend="keras-jax", **NODES), TEXT],
    ids=lambda config: f"{config.backend}-{config.model}-{config.nodes}",
)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(runs_dir: Path, config: RunConfig) -> None:
    first = replace(config, freeze="", max_steps=2, launcher="local", nodes=1, network="", early_stop=0)
    with launched(first, runs_dir) as begun:
        _ended(begun, "completed")
    file = list_checkpoints(begun.run.checkpoints)[0][0].path / MODEL_FILE
    config = replace(config, init_from=str(file))
    with launched(config, runs_dir) as straight, _others(config, straight):
        _ended(straight, "completed")
    [initial] = straight.of(InitialWeights)
    assert initial.matched == initial.arrays
    assert 0 < initial.frozen < initial.parameters
    with launched(config, runs_dir) as stopped, _others(config, stopped):
        stopped.wait(Metrics, seconds=END_S)
        mailbox.send(stopped.run.commands, "stop")
        _ended(stopped, "stopped")
    steps = stopped.last_step(0)
    assert 0 < steps < straight.last_step(0)
    with resumed(stopped.run, config) as again, _others(config, again):
        _ended(again, "completed")
    for rank in range(2):
        assert again.steps_of(rank)[0] == steps + 1
        # Of both attempts.
        assert stopped.losses(rank) == straight.losses(rank)
    wanted, found = (load(list_checkpoints(one.run.checkpoints)[0][0]) for one in (straight, again))
    assert found.step == wanted.step
    for before, after in ((wanted.model, found.model), (wanted.state, found.state)):
        assert before.keys() == after.keys()
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array, err_msg=name)


def _others(config: RunConfig, run: Watched) -> AbstractContextManager[object]:
    return agent(run) if config.nodes > 1 else nullcontext()


def _ended(run: Watched, status: str) -> None:
    assert (end := run.end(END_S)).status == status, end
    run.wait_gone()
