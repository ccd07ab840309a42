"""A run that goes on from a checkpoint makes the same steps, bit for bit, as one that never stopped."""

from __future__ import annotations

import msgspec
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.recorder import ONE_PROCESS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.run_config import RunConfig

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
