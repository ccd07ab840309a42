"""From the same initial weights all backends make the same curve."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.recorder import ONE_PROCESS, Recorder, Shelf, check_predictions, train
from tests.kit.reported import Evaluation, values
from tests.kit.variants import mostly_by_hand
from tests.kit.weights import from_torch, gluon_arrays, into_keras, keras_arrays
from tuiapp.trainers.backends.jax_sharding import make_step
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import Predictions
from tuiapp.trainers.contract.metrics import GRADIENT_NORM
from tuiapp.trainers.frameworks.jax.devices import named_leaves
from tuiapp.trainers.frameworks.jax.mesh import DeviceMesh
from tuiapp.trainers.frameworks.jax.state import create
from tuiapp.trainers.frameworks.keras import state as keras_state
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.frameworks.torch.ranks import build_optimizer
from tuiapp.trainers.rank.checkpoints import Saved
from tuiapp.trainers.rank.schedules import learning_rate
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly


STEPS = 30
CONFIG = RunConfig(
    platform="cpu", optimizer="sgd", learning_rate=0.1, nesterov=True, weight_decay=1e-3, gradient_clip=2.0,
    schedule="cosine", warmup_steps=5, epochs=2, max_steps=STEPS, checkpoint_every=0,
)  # fmt: skip
CASES = [("mlp", 2, (28, 28, 1)), ("net", 1, (5, 5, 64))]


"""Model, devices, and what its first dense layer sees. jax-sharding's BatchNorm sees the whole global batch."""


RATES = {"mlp": 0.1, "net": 0.01}


"""Where two pixels of a pool are nearly alike, rounding decides which gets the gradient: little of it at a low rate."""


class ByTorch(NamedTuple):
    """What torch-ddp made of a configuration."""

    config: RunConfig
    flattened: tuple[int, int, int]
    losses: list[float]
    norms: list[float | None]
    """Of the gradients."""
    evaluation: Evaluation


@pytest.fixture(scope="module", params=mostly_by_hand(CASES, CASES[0]), ids=lambda case: case[0])
def by_torch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ByTorch:
    model, devices, flattened = request.param
    config = msgspec.structs.replace(CONFIG, model=model, devices=devices, learning_rate=RATES[model])
    with launched(config, tmp_path_factory.mktemp("runs")) as run:
        assert run.end(120).status == "completed"
        losses = [run.losses(rank) for rank in range(devices)]
        means = [sum(step) / devices for step in zip(*losses, strict=True)]
        # Rank 0 alone tells of the norm, which is the same on all.
        norms = values(run.reports(), GRADIENT_NORM)
        evaluation = run.evaluations()[-1]
        check_predictions(run.of(Predictions)[-1], evaluation.accuracy, datasets.load(find_dataset("digits")).y_test)
        return ByTorch(config, flattened, means, norms, evaluation)


def carried(config: RunConfig, flattened: tuple[int, int, int]) -> Saved:
    """A checkpoint before the first step, with the weights that torch-ddp starts from."""
    shelf = Shelf()
    train(config, stop_at=1, save_at=0, shelf=shelf)
    torch.manual_seed(config.seed)
    module = torch_models.build(config.model, (28, 28, 1), 10)
    if config.backend == "mxnet-gluon":
        return shelf.saved[0]._replace(model=gluon_arrays(module))
    if config.backend == "keras-jax":
        model = keras_state.create_model(make_plan(config))
        into_keras(module, model, flattened)
        return shelf.saved[0]._replace(model=keras_arrays(model))
    state = create(make_plan(config))
    like = {"params": state.params, "batch_stats": state.batch_stats}
    return shelf.saved[0]._replace(model=named_leaves(from_torch(module, like, flattened)))


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "jax-sharding", "mxnet-gluon"))
def test_thirty_steps_of_sgd(backend: str, by_torch: ByTorch) -> None:
    config = msgspec.structs.replace(by_torch.config, backend=backend)
    told = train(config, shelf=Shelf(carried(config, by_torch.flattened)))
    losses = np.array(told.losses()).mean(axis=1)
    assert len(losses) == len(by_torch.losses) == STEPS
    # MXNet's BatchNorm sums in float32 and is off by 2e-5 (oneDNN's; 1.2e-4 without), which flips single argmaxes of
    # the pooling. Noise of 2e-5 in torch's BatchNorm does as much; convolution, loss and optimizer are as torch's.
    # MXNET_SAFE_ACCUMULATION does not change it, and a BatchNorm in two passes takes 10 to 20 times as long.
    steps = 4 if backend == "mxnet-gluon" and config.model == "net" else STEPS
    assert_close(losses[:steps], by_torch.losses[:steps], in_training(config))
    assert losses[-1] < 0.8 * losses[0]
    # Under pmap each device has its copy.
    norms = [float(np.ravel(step.gradient_norm)[0]) for step in told.steps]
    within = in_training(config)
    assert_close(norms[:steps], by_torch.norms[:steps], within, relative=True)
    if config.model == "net":
        # The running variance differs by 1 / (n - 1): see `torch_models`. After the second convolution n is least.
        within += 2.5 / (config.global_batch_size * 11 * 11 - 1)
    if steps == STEPS:
        assert_close(told.evaluations[-1].loss, by_torch.evaluation.loss, within)
    else:
        assert by_torch.evaluation.loss is not None
        assert abs(told.evaluations[-1].loss - by_torch.evaluation.loss) < 0.1 * by_torch.evaluation.loss


FEW_STEPS = 20


@pytest.mark.parametrize(
    ("model", "flattened"), [("mlp", (28, 28, 1)), pytest.param("net", (5, 5, 64), marks=pytest.mark.by_hand)]
)
@pytest.mark.parametrize("optimizer", mostly_by_hand(["sgd", "adam"], "adam"))
def test_twenty_steps(model: str, flattened: tuple[int, int, int], optimizer: str) -> None:
    config = RunConfig(model=model, optimizer=optimizer, learning_rate=0.002, weight_decay=1e-3, schedule="linear")
    torch.manual_seed(0)
    module = torch_models.build(model, (28, 28, 1), 10)
    state = create(make_plan(config))
    like = {"params": state.params, **({"batch_stats": state.batch_stats} if state.batch_stats else {})}
    start = from_torch(module, like, flattened)
    state = state.replace(params=start["params"], batch_stats=start.get("batch_stats", {}))
    torch_optimizer = build_optimizer(config, module)
    one = msgspec.structs.replace(config, devices=1)
    mesh = DeviceMesh(make_plan(one), Recorder())  # type: ignore[arg-type]
    step_fn = jax.jit(partial(make_step, config=one, mesh=mesh))
    arrays = datasets.load(find_dataset("digits"))
    plan = make_plan(config)
    curves: tuple[list[float], list[float]] = [], []
    for step, rows in enumerate(datasets.epoch_order(len(arrays.x_train), 48, 0, 1)[:FEW_STEPS], start=1):
        x, y, rate = (
            arrays.x_train[rows].astype(np.float32) / 255,
            arrays.y_train[rows],
            learning_rate(plan, step),
        )
        state, losses, _ = step_fn(state, x, y, rate)
        curves[0].append(float(losses[0]))
        loss = F.cross_entropy(module(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())), torch.from_numpy(y))
        torch_optimizer.param_groups[0]["lr"] = float(rate)
        torch_optimizer.zero_grad()
        loss.backward()
        torch_optimizer.step()
        curves[1].append(loss.item())
    assert_close(*curves, in_training(config, steps=FEW_STEPS))
    assert curves[0][-1] < curves[0][0]
