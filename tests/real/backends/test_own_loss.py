"""A loss and metrics of the user's own: on every backend the curve of a loop written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched
from tests.kit.only_rank import train_alone
from tests.kit.recorder import Recorder, Shelf, train
from tests.kit.reported import values
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.contract.events import Alert, Checkpoint, Metrics, RankFailed
from tuiapp.trainers.rank import evaluation, tensor_files
from tuiapp.trainers.rank.checkpoints import Saved
from tuiapp.trainers.sources.datasets import load
from tuiapp.trainers.sources.own_loss import own_of

pytestmark = pytest.mark.nightly

TORCH = """
import torch
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))

def loss(outputs, targets):
    return (outputs.softmax(1) - nn.functional.one_hot(targets, 10)).square().sum(1)

def margin(outputs, targets):
    first, second = outputs.topk(2).values.unbind(1)
    return first - second

metrics = {"margin": margin, "digit": lambda outputs, targets: targets}
"""
FLAX = """
import flax.linen as nn
import jax
import jax.numpy as jnp

def net(shape, classes):
    return nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(classes)])

def loss(outputs, targets):
    return jnp.square(nn.softmax(outputs) - jax.nn.one_hot(targets, 10)).sum(1)

def margin(outputs, targets):
    first, second = jax.lax.top_k(outputs, 2)[0].T
    return first - second

metrics = {"margin": margin, "digit": lambda outputs, targets: targets}
"""
KERAS = """
import keras
from keras import layers, ops

def net(shape, classes):
    return keras.Sequential([layers.Input(shape), layers.Flatten(), layers.Dense(classes)])

def loss(outputs, targets):
    return ops.sum(ops.square(ops.softmax(outputs) - ops.one_hot(targets, 10)), axis=1)

def margin(outputs, targets):
    best = ops.top_k(outputs, 2)[0]
    return best[:, 0] - best[:, 1]

metrics = {"margin": margin, "digit": lambda outputs, targets: targets}
"""
CODE = {"torch": TORCH, "flax": FLAX, "keras": KERAS}
CONFIG = RunConfig(
    dataset="digits", platform="cpu", devices=1, global_batch_size=48, optimizer="sgd", momentum=0.0,
    learning_rate=0.1, epochs=1, checkpoint_every=0, seed=3,
)  # fmt: skip
DATA = load(find_dataset("digits"))


def written(directory: Path, backend: str) -> str:
    packages = BACKENDS[backend].packages
    framework = next(name for name in ("keras", "flax", "torch") if name in packages)
    (directory / "own.py").write_text(CODE[framework])
    return f"py:{directory}/own.py:net"


WITHIN = in_training(msgspec.structs.replace(CONFIG, model="mlp"))
"""The models have one layer of as many inputs."""
STILL: dict[str, Any] = {"learning_rate": 1e-30, "checkpoint_every": 1}
"""A step that changes no weight."""


def by_hand(start: Saved) -> tuple[list[float], dict[str, float]]:
    """The loss of each step of an epoch, and what the evaluation after it comes to, from the same weights."""
    arrays = [torch.from_numpy(array).double() for array in start.model.values()]
    weight, bias = sorted(arrays, key=lambda one: -one.ndim)
    weight = (weight if len(weight) == 784 else weight.T).clone().requires_grad_()
    bias = bias.clone().requires_grad_()
    x, x_test = (torch.from_numpy(one).flatten(1).double() / 255 for one in (DATA.x_train, DATA.x_test))
    y, y_test = (torch.from_numpy(one).long() for one in (DATA.y_train, DATA.y_test))

    def losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return ((logits.softmax(1) - F.one_hot(labels, 10)) ** 2).sum(1)

    order = np.random.Generator(np.random.PCG64([CONFIG.seed, 1])).permutation(len(x))
    found = []
    for rows in order[: len(x) // 48 * 48].reshape(-1, 48):
        loss = losses(x[rows] @ weight + bias, y[rows]).mean()
        loss.backward()
        with torch.no_grad():
            for one in (weight, bias):
                assert one.grad is not None
                one -= 0.1 * one.grad
                one.grad = None
        found.append(loss.item())
    with torch.no_grad():
        logits = x_test @ weight + bias
    best = logits.topk(2).values
    evaluated = {
        "loss": losses(logits, y_test).mean(),
        "cross_entropy": F.cross_entropy(logits, y_test),
        "margin": (best[:, 0] - best[:, 1]).mean(),
        "digit": y_test.double().mean(),
        "accuracy": (logits.argmax(1) == y_test).double().mean(),
    }
    return found, {name: value.item() for name, value in evaluated.items()}


def check(told: Recorder, shelf: Shelf) -> None:
    losses, evaluated = by_hand(shelf.saved[0])
    assert_close(np.mean(np.reshape(told.losses(), (len(losses), -1)), axis=1), losses, WITHIN)
    found = vars(told.evaluations[-1])
    assert_close([found[name] for name in evaluated], list(evaluated.values()), WITHIN)
    assert any(alert.kind == "loss" and "minimizes the loss of py:" in alert.text for alert in told.alerts)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test set's last batch is smaller than the others."""
    monkeypatch.setattr(evaluation, "EVAL_BATCH", 100)
    assert len(DATA.x_test) % 100


@pytest.mark.parametrize("backend", ["torch-ddp", "torch-fsdp", "torch-dp"])
def test_one_rank_of_torch_has_the_curve_of_the_loop(backend: str, tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, model=written(tmp_path, backend))
    shelf, run = Shelf(), train if backend == "torch-dp" else train_alone
    check(run(config, shelf=shelf, save_at=0), shelf)


@pytest.mark.by_hand
@pytest.mark.parametrize("devices", mostly_by_hand([1, 2], 2))
@pytest.mark.parametrize("backend", ["jax-sharding", "jax-pmap", "keras-jax"])
def test_jax_has_the_curve_of_the_loop(backend: str, devices: int, tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, model=written(tmp_path, backend), devices=devices)
    shelf = Shelf()
    check(train(config, shelf=shelf, save_at=0), shelf)


@pytest.mark.parametrize("backend", mostly_by_hand(["torch-ddp", "torch-fsdp", "keras-torch"], "torch-ddp"))
def test_two_ranks_have_it_and_are_best_by_a_metric(backend: str, tmp_path: Path) -> None:
    """The margin grows: the least is the first, and two evaluations later the run ends."""
    config = msgspec.structs.replace(CONFIG, backend=backend, model=written(tmp_path, backend))
    with launched(msgspec.structs.replace(config, max_steps=1, **STILL), tmp_path / "start") as run:
        assert run.end().status == "completed"
        start = run.run.checkpoints / "step-00000001" / "model.safetensors"
        losses, evaluated = by_hand(Saved(0, tensor_files.load(start), {}))
    longer = {"epochs": 6, "checkpoint_every": 1, "best": "lowest:margin", "early_stop": 2, "devices": 2}
    with launched(msgspec.structs.replace(config, **longer), tmp_path / "runs") as run:
        end = run.end()
        assert end.status == "completed"
        curve = np.mean([run.losses(rank) for rank in range(2)], axis=0)
        assert_close(curve[: len(losses)], losses, WITHIN)
        margins = [value or 0.0 for value in values(run.of(Metrics), "test/margin")]
        assert len(margins) == 3
        assert_close(margins[0], evaluated["margin"], WITHIN)
        assert margins[0] < min(margins[1:])
        assert [one.best for one in run.of(Checkpoint)] == [True, False, False]
        said = next(alert.text for alert in run.of(Alert) if alert.kind == "early-stop")
        assert said.startswith("early stop: test margin was not the best in 2 evaluations in a row")
        assert end.summary.metrics["test/margin"].least == margins[0]
        assert end.summary.metrics["test/cross_entropy"].last == values(run.of(Metrics), "test/cross_entropy")[-1]
        if backend != "keras-torch":
            first = tensor_files.load(run.run.checkpoints / "step-00000029" / "model.safetensors")
            exported = tensor_files.load(run.run.export / "model.safetensors")
            assert all(np.array_equal(exported[name], first[name]) for name in first)


def test_what_raises_is_told_from_the_users_file_on(tmp_path: Path) -> None:
    model = written(tmp_path, "torch-ddp")
    with (tmp_path / "own.py").open("a") as file:
        file.write("\ndef loss(outputs, targets):\n    raise ValueError('of mine')\n")
    with launched(msgspec.structs.replace(CONFIG, model=model), tmp_path / "runs") as run:
        end = run.end()
        (failed,) = run.of(RankFailed)
        assert (end.status, failed.error) == ("failed", "ValueError: of mine")
        assert failed.traceback.splitlines()[1].startswith(f'  File "{tmp_path}/own.py"')


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("loss = 3", "loss in FILE is a int; it must be a function of outputs and targets."),
        (
            "metrics = [max]",
            "metrics in FILE is a list; it must be a dict of functions of outputs and targets, such as",
        ),
        ("metrics = {'a': 3}", "metrics in FILE has 'a': a int; it must be a function of outputs and targets."),
        ("metrics = {'a b': max}", "metrics in FILE has 'a b'; a name has letters, digits and _ . -, at most 60, and"),
        ("metrics = {'accuracy': max}", "is none of loss, accuracy, perplexity, cross_entropy, examples, seconds."),
        ("loss = lambda x, y: x.mean()", "loss of FILE gave an array [] for 2 examples; it must give a value for each"),
        ("loss = lambda x, y: 0.5", "loss of FILE gave float for 2 examples; it must give a value for each, [2], and"),
        ("metrics = {'a': lambda x, y: x}", "a of FILE gave an array [2, 10] for 2 examples; it must"),
        ("loss = lambda x, y: x.sum(1) * float('nan')", "loss of FILE gave nan for outputs between -2.3 and 1.3; its"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(code: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(code)
    call: Callable[..., Any] = lambda function, x, y: ((found := function(x, y)), np.asarray(found))  # noqa: E731
    with pytest.raises(UserCodeError) as caught:
        own_of(f"py:{file}:net").check((28, 28, 1), 10, call)
    assert message.replace("FILE", str(file)) in str(caught.value)


def test_a_loss_without_gradient_is_refused(tmp_path: Path) -> None:
    model = written(tmp_path, "torch-dp")
    with (tmp_path / "own.py").open("a") as file:
        file.write("\ndef loss(outputs, targets):\n    return outputs.detach().sum(1)\n")
    with pytest.raises(UserCodeError, match="has no gradient; compute it from the outputs, by PyTorch alone"):
        train(msgspec.structs.replace(CONFIG, backend="torch-dp", model=model))
