"""Runs that go on from a checkpoint, steps that write into the state before, and options all at once: bit for bit."""

from __future__ import annotations

import importlib
from copy import deepcopy
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit.close import assert_close, in_training
from tests.kit.only_rank import train_alone
from tests.kit.recorder import JAX_BACKENDS, ONE_PROCESS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank.loop import STEPS_IN_FLIGHT
from tuiapp.trainers.rank.tensor_files import encode

pytestmark = pytest.mark.nightly


CONFIG = RunConfig(
    model="convnet", platform="cpu", devices=2, epochs=2, max_steps=40, schedule="cosine", warmup_steps=5,
    weight_decay=1e-3, gradient_clip=1.0, checkpoint_every=0,
)  # fmt: skip


"""Dropout, BatchNorm, a moving rate: all that a checkpoint could forget."""


def _losses(told: Recorder) -> dict[int, list[float]]:
    return dict(zip((step.step for step in told.steps), told.losses(), strict=True))


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "jax-sharding"))
@pytest.mark.parametrize(
    ("optimizer", "save_at"),
    [
        ("adam", 29),
        pytest.param("sgd", 7, marks=pytest.mark.by_hand),
        pytest.param("adadelta", 33, marks=pytest.mark.by_hand),
    ],
)
def test_the_curve_goes_on_as_if_nothing_had_happened(backend: str, optimizer: str, save_at: int) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, optimizer=optimizer, nesterov=optimizer == "sgd")
    shelf = Shelf()
    whole = train(config, save_at=save_at, shelf=shelf)
    assert list(shelf.saved) == [save_at]
    rest = train(config, shelf=Shelf(shelf.saved[save_at]))
    expected = {step: losses for step, losses in _losses(whole).items() if step > save_at}
    assert _losses(rest) == expected
    assert [step.learning_rate for step in rest.steps] == [step.learning_rate for step in whole.steps][save_at:]
    # Evaluations before the checkpoint are not made again.
    assert rest.evaluations == [one for one in whole.evaluations if one.step > save_at]


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "jax-sharding"))
def test_on_other_devices_it_goes_on_nearly_the_same(backend: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, model="mlp", optimizer="sgd")
    shelf = Shelf()
    whole = train(config, save_at=20, shelf=shelf)
    rest = train(msgspec.structs.replace(config, devices=4), shelf=Shelf(shelf.saved[20]))
    means = [sum(losses) / 2 for losses in whole.losses()[20:]]
    assert_close([sum(losses) / 4 for losses in rest.losses()], means, in_training(config))


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "mxnet-gluon"))
def test_a_checkpoint_that_does_not_fit_is_refused(backend: str) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, model="mlp", max_steps=3)
    shelf = Shelf()
    train(config, save_at=2, shelf=shelf)
    with pytest.raises(ValueError, match=r"the checkpoint does not fit: .* is missing"):
        train(msgspec.structs.replace(config, model="net"), shelf=Shelf(shelf.saved[2]))


def _trained(backend: str) -> tuple[Recorder, Shelf]:
    shelf = Shelf()
    config = RunConfig(
        backend=backend, model="net", platform="cpu", devices=2, epochs=2, max_steps=40, ema=0.9, checkpoint_every=0
    )
    return train(config, save_at=10, shelf=shelf), shelf


@pytest.mark.parametrize("backend", mostly_by_hand(JAX_BACKENDS, "jax-sharding"))
def test_donated_states_with_steps_in_flight(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, kept = _trained(backend)
    assert plain.step_memory is not None
    assert plain.step_memory.aliased == 0
    waits: list[Any] = []

    def wait(result: Any) -> None:
        waits.append(result)
        jax.block_until_ready(result)

    module = importlib.import_module(BACKENDS[backend].module)
    monkeypatch.setattr(module, "donated", lambda config: (0,))
    monkeypatch.setattr(module, "steps_in_flight", lambda config: {"wait": wait, "limit": STEPS_IN_FLIGHT})
    told, shelf = _trained(backend)
    assert told.step_memory is not None
    assert told.step_memory.outputs - told.step_memory.aliased < 1 << 14
    assert waits
    assert told.losses() == plain.losses()
    assert told.evaluations == plain.evaluations
    # What is saved must not change with the steps after it.
    for mine, theirs in ((shelf.saved[10].model, kept.saved[10].model), (shelf.saved[10].state, kept.saved[10].state)):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert all(np.array_equal(shelf.exported[name], kept.exported[name]) for name in kept.exported)


EVERYTHING = RunConfig(
    model="mlp", platform="cpu", devices=1, max_steps=12, optimizer="sgd", learning_rate=0.02, learning_rate_for=96,
    weight_decay=0.01, gradient_clip=1.0, schedule="one-cycle", augment="mixup", label_smoothing=0.1, normalize="data",
    freeze="*fc1*", early_stop=3, seed=3,
)  # fmt: skip
ALONE = ("torch-ddp", "torch-fsdp")


"""A rank each, of which one trains here."""


BUILTIN = [name for name, backend in BACKENDS.items() if backend.builtin and name != "keras-torch"]


def trained(config: RunConfig, shelf: Shelf, save_at: int | None = None) -> Recorder:
    if config.backend in ALONE:
        return train_alone(config, shelf, save_at=save_at)
    return train(config, save_at=save_at, shelf=shelf)


def variants(config: RunConfig) -> list[dict[str, Any]]:
    """What makes the same curve."""
    keys, found = BACKENDS[config.backend].keys, list[dict[str, Any]]()
    if config.backend in ONE_PROCESS:
        found.append({"devices": 2})
    if "mesh" in keys:
        found.append({"devices": 4, "mesh": "batch=2,model=2"})
    if "compile" in keys:
        found.append({"compile": True})
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ["float32", pytest.param("float16", marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("backend", mostly_by_hand(BUILTIN, "jax-pmap"))
def test_everything_at_once(backend: str, precision: str, tmp_path: Path) -> None:
    if precision not in BACKENDS[backend].precisions:
        pytest.skip(f"{backend} has no {precision}")
    config = replace(EVERYTHING, backend=backend, precision=precision)
    if "ema" in BACKENDS[backend].keys:
        config = replace(config, ema=0.9, accumulate=3)
    begun, file = Shelf(), tmp_path / "begun.safetensors"
    trained(replace(config, freeze="", max_steps=2), begun, save_at=2)
    file.write_bytes(b"".join(encode({name: np.asarray(array) for name, array in begun.saved[2].model.items()})))
    config = replace(config, init_from=str(file))
    curves = []
    for changes in ({}, *variants(config)):
        shelf = Shelf()
        whole = trained(replace(config, **changes), shelf, save_at=5)
        rest = trained(replace(config, **changes), after := Shelf(deepcopy(shelf.saved[5])))
        assert rest.losses() == whole.losses()[5:]
        wanted, found = ({**one.saved[12].model, **one.saved[12].state} for one in (shelf, after))
        assert wanted.keys() == found.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{changes} {name}")
        losses = np.reshape(whole.losses(), (12, -1)).mean(axis=1).tolist()
        curves.append([*losses, whole.evaluations[-1].loss])
    for curve in curves:
        assert_close(curve, curves[0], in_training(config))
