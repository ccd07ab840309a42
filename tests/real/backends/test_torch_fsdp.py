"""torch-fsdp: the curve of torch-ddp from a part of the state on each rank."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from torch import nn

from tests.kit.close import assert_close, in_training, rounding
from tests.kit.harness import Watched, launched, resumed
from tests.kit.only_rank import train_alone
from tests.kit.recorder import Recorder, Shelf
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.backends.torch_fsdp import blocks
from tuiapp.trainers.config.memory import estimate_memory
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Held, Sharding
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.rank.checkpoints import load

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    backend="torch-fsdp", model="convnet", platform="cpu", devices=1, epochs=1, max_steps=8, global_batch_size=24,
    schedule="cosine", gradient_clip=0.5, checkpoint_every=0,
)  # fmt: skip
"""With dropout, BatchNorm, weights that are not trained, and a learning rate that changes."""


def _train(shelf: Shelf | None = None, *, save_at: int | None = None, **changes: object) -> Recorder:
    return train_alone(msgspec.structs.replace(CONFIG, **changes), shelf, save_at=save_at)


@pytest.mark.parametrize(("model", "optimizer"), [("convnet", "adam"), ("mlp", "sgd"), ("mlp", "adadelta")])
def test_resuming_goes_on_bit_for_bit(model: str, optimizer: str) -> None:
    shelf = Shelf()
    whole = _train(shelf, save_at=5, model=model, optimizer=optimizer)
    rest = _train(Shelf(shelf.saved[5]), model=model, optimizer=optimizer)
    assert rest.losses() == whole.losses()[5:]
    assert rest.evaluations == whole.evaluations


@pytest.mark.parametrize("model", mostly_by_hand(["mlp", "convnet"], "mlp"))
def test_two_ranks_go_on_bit_for_bit_and_as_one(model: str, tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        CONFIG, devices=2, model=model, schedule="constant", max_steps=20, checkpoint_every=1
    )
    with launched(config, tmp_path) as run:
        assert run.end().status == "completed"
        straight, evaluation = [run.losses(rank) for rank in range(2)], run.evaluations()[-1]
        whole = load(list_checkpoints(run.run.checkpoints)[0][0])
        check_parts(config, run)
    with launched(msgspec.structs.replace(config, max_steps=9), tmp_path) as run:
        assert run.end().status == "completed"
        run.wait_gone()
        saved = load(list_checkpoints(run.run.checkpoints)[0][0])
        with resumed(run.run, config) as again:
            assert again.end().status == "completed"
            assert [again.losses(rank)[-11:] for rank in range(2)] == [losses[9:] for losses in straight]
            again.wait_gone()
        last = load(list_checkpoints(run.run.checkpoints)[0][0])
    for name, array in {**whole.model, **whole.state}.items():
        # The evaluation after step 9 took the mean of the ranks' statistics once more: the same but for rounding.
        if "running" in name:
            assert_close({**last.model, **last.state}[name], array, rounding(3), name=name)
        else:
            np.testing.assert_array_equal({**last.model, **last.state}[name], array, err_msg=name)
    assert (last.model.keys(), last.state.keys()) == (whole.model.keys(), whole.state.keys())
    if model == "mlp":
        # Of the others Dropout and BatchNorm depend on which device has which examples.
        rest = _train(Shelf(saved), model=model, schedule="constant", max_steps=20)
        means = np.mean([losses[9:] for losses in straight], axis=0)
        assert_close(np.ravel(rest.losses()), means, in_training(config))
        assert_close(rest.evaluations[-1].loss, evaluation.loss, in_training(config))


def check_parts(config: RunConfig, run: Watched) -> None:
    """Each rank holds its half of every array, as the plan said; in two halves they are all."""
    first, second = (next(held for held in run.of(Held) if held.rank == rank) for rank in range(2))
    shapes = [p.shape for p in torch_models.build(config.model, (28, 28, 1), 10).parameters() if p.requires_grad]
    weights = sum(4 * shape.numel() for shape in shapes)
    for held in (first, second):
        assert held.held["optimizer"] == pytest.approx(2 * weights / 2, rel=0.05)
        assert estimate_memory(config).optimizer == pytest.approx(held.held["optimizer"], rel=0.05)
        assert held.whole["optimizer"] == 2 * weights + 4 * len(shapes)
    assert first.held["parameters"] + second.held["parameters"] == first.whole["parameters"]
    assert {"all-gather before forward", "reduce-scatter after backward"} == first.exchanged["all else"].keys()
    if config.model == "mlp":
        parts = {
            one.rank: one for event in run.of(Sharding) if event.array == "parameter fc1.weight" for one in event.shards
        }
        assert [parts[rank].index for rank in range(2)] == [[(0, 128), (0, 784)], [(128, 256), (0, 784)]]
        assert {part.bytes for part in parts.values()} == {128 * 784 * 4}


def test_blocks_are_the_outermost_modules_made_of_others() -> None:
    block = torch_models.Residual(2, 2, 1)
    model = nn.Sequential(nn.Linear(2, 2), nn.ModuleList([block, nn.Sequential(nn.Linear(2, 2), block)]), nn.ReLU())
    assert [name for name, _ in blocks(model)] == ["1.0", "1.1.1"]
    assert [name for name, _ in blocks(torch_models.build("mlp", (28, 28, 1), 10))] == []
