"""What augmentation draws, what devices make of it, and what training makes of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
import torch
from msgspec.structs import replace

from tests.kit.close import assert_close, in_training, rounding
from tests.kit.harness import launched
from tests.kit.npz import make_arrays, write_npz
from tests.kit.only_rank import train_alone
from tests.kit.recorder import JAX_BACKENDS, ONE_PROCESS, Recorder, Shelf, train, train_plan
from tests.kit.user_files import write_data
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.plan import Plan, make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.accumulate import take
from tuiapp.trainers.frameworks.mxnet import augmentation as on_host
from tuiapp.trainers.frameworks.torch.ranks import TrainingSet
from tuiapp.trainers.sources import user_data
from tuiapp.trainers.sources.augmentation import PAD, Order, draws, examples, with_draws
from tuiapp.trainers.sources.datasets import epoch_order, remaining

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=2, global_batch_size=24, max_steps=8, optimizer="sgd", learning_rate=0.01,
    checkpoint_every=0,
)  # fmt: skip
"""With SGD: Adam makes whole steps of what is rounding alone."""
KINDS = ["flip", "crop-flip", "mixup"]
BUILTIN = [name for name, backend in BACKENDS.items() if backend.builtin]
EXAMPLES = 120


def planned(tmp_path: Path, augment: str, backend: str = "torch-ddp", dtype: str = "uint8", **changes: Any) -> Plan:
    """On images of 13×11 pixels in three colours; five steps an epoch."""
    data = write_npz(tmp_path / f"{dtype}.npz", make_arrays(dtype=dtype, train=EXAMPLES))
    return make_plan(replace(CONFIG, backend=backend, dataset=data, augment=augment, **changes))


def one_device(backend: str) -> int:
    """torch-dp has one on the CPU."""
    return 1 if backend == "torch-dp" else 2


def drawn(plan: Plan, epoch: int = 1) -> Order:
    first, order = remaining(replace(plan, total_steps=1000), epoch)
    return with_draws(plan, epoch, first, order)


def augmented(image: npt.NDArray[Any], flip: bool, top: int = PAD, left: int = PAD) -> npt.NDArray[Any]:
    """One image, pixel by pixel."""
    height, width, _ = image.shape
    made = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            y, x = row + top - PAD, column + left - PAD
            if 0 <= y < height and 0 <= x < width:
                made[row, column] = image[y, x]
    return made[:, ::-1] if flip else made


def expected(images: npt.NDArray[Any], order: Order) -> npt.NDArray[Any]:
    """The images of a batch as they are stored, cropped and flipped."""
    names = [name for name in order.dtype.names or () if name != "example"]
    return np.stack([augmented(images[one["example"]], *(one[name] for name in names)) for one in order])


# What is drawn.


@pytest.mark.parametrize("augment", KINDS)
def test_the_draws_of_a_step_do_not_depend_on_where_a_run_began(augment: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, augment)
    whole = drawn(plan, epoch=2)
    first, order = remaining(plan, 2, 7)
    assert first == 8
    np.testing.assert_array_equal(with_draws(plan, 2, first, order), whole[2 : 2 + len(order)])
    assert not np.array_equal(whole, drawn(plan, epoch=1))
    assert not np.array_equal(whole, drawn(replace(plan, config=replace(plan.config, seed=1)), epoch=2))
    np.testing.assert_array_equal(whole["example"], epoch_order(EXAMPLES, 24, 0, 2))


def test_draws_are_as_they_should_be_distributed() -> None:
    plan = make_plan(replace(CONFIG, dataset="digits", augment="crop-flip"))
    found = np.concatenate([drawn(plan, epoch) for epoch in range(1, 9)])
    assert found["flip"].mean() == pytest.approx(0.5, abs=0.02)
    for side in ("top", "left"):
        assert np.bincount(found[side].ravel()) / found.size == pytest.approx([1 / 9] * 9, abs=0.01)
    mixed = drawn(replace(plan, config=replace(plan.config, augment="mixup", mixup_alpha=0.2)))
    # Beta(α, α) has the variance 1 / (4 (2α + 1)).
    assert (mixed["weight"].mean(), mixed["weight"].var()) == pytest.approx((0.5, 1 / 5.6), abs=0.02)
    for step in mixed:
        assert sorted(step["partner"]) == sorted(step["example"])
    assert (mixed["partner"] != mixed["example"]).mean() > 0.9


# What devices make of it.


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("augment", ["flip", "crop-flip"])
def test_images_are_those_made_pixel_by_pixel(augment: str, dtype: str, tmp_path: Path) -> None:
    arrays = make_arrays(dtype=dtype, train=EXAMPLES)
    images, labels = arrays["x_train"], arrays["y_train"]
    order = drawn(planned(tmp_path, augment, dtype=dtype))[:1]
    wanted = expected(images, order[0])
    as_floats = wanted.astype(np.float32) / 255 if dtype == "uint8" else wanted
    for layout in (torch.contiguous_format, torch.channels_last, None):
        device = torch.device("cpu")
        x, y = TrainingSet(images, labels, device, layout, classes=3).batch(
            next(iter(TrainingSet(images, labels, device, layout, classes=3).place(order)))
        )
        np.testing.assert_array_equal(x if layout is None else x.permute(0, 2, 3, 1), as_floats)
        assert layout is None or x.is_contiguous(memory_format=layout)
        np.testing.assert_array_equal(y, labels[order[0]["example"]])
    by_name = {"examples": examples(order), **draws(order)}
    x, y = jax.jit(take, static_argnums=4)(images, labels, by_name, 0, 3)
    # A byte times the reciprocal of 255, which is rounded, too.
    assert_close(x, as_floats, rounding(2))
    np.testing.assert_array_equal(y, labels[order[0]["example"]])
    np.testing.assert_array_equal(on_host.change(images[examples(order[0])], draws(order[0])), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_mixtures_are_the_weighted_sums(dtype: str, tmp_path: Path) -> None:
    arrays = make_arrays(dtype=dtype, train=EXAMPLES)
    images, labels = arrays["x_train"], arrays["y_train"]
    order = drawn(planned(tmp_path, "mixup", dtype=dtype))[:1]
    floats, shares = images.astype(np.float64) / (255 if dtype == "uint8" else 1), np.eye(3)[labels]
    one, other, weight = (order[0][name] for name in ("example", "partner", "weight"))
    wanted = [
        np.stack([w * part[a] + (1 - w) * part[b] for a, b, w in zip(one, other, weight, strict=True)])
        for part in (floats, shares)
    ]
    training_set = TrainingSet(images, labels, torch.device("cpu"), classes=3)
    by_torch = training_set.batch(next(iter(training_set.place(order))))
    by_name = {"examples": examples(order), **draws(order)}
    by_jax = jax.jit(take, static_argnums=4)(images, jnp.asarray(labels), by_name, 0, 3)
    rows = examples(order[0])
    by_mxnet = on_host.mix(images[rows], on_host.smooth(labels[rows], 3, 0.0), weight)
    for found in (by_torch, by_jax, by_mxnet):
        assert {np.asarray(part).dtype for part in found} == {np.dtype(np.float32)}
        for part, exact in zip(found, wanted, strict=True):
            # Two scaled bytes, times two weights, one of which is a difference; then a sum.
            assert_close(part, exact, rounding(8))


# What training makes of that.


def trained(backend: str, config: RunConfig, tmp_path: Path) -> list[float]:
    """Each step's loss, the mean over the devices, and the test loss."""
    config = replace(config, backend=backend, devices=min(config.devices, one_device(backend)))
    if backend in ONE_PROCESS:
        return curve(train(config))
    with launched(config, tmp_path) as run:
        assert run.end(170).status == "completed"
        losses = [run.losses(rank) for rank in range(config.devices)]
        return [*np.mean(losses, axis=0).tolist(), run.evaluations()[-1].loss]


def curve(told: Recorder) -> list[float]:
    return [*np.array(told.losses()).reshape(len(told.steps), -1).mean(axis=1).tolist(), told.evaluations[-1].loss]


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", mostly_by_hand(BUILTIN, "torch-ddp", "jax-sharding"))
@pytest.mark.parametrize("augment", mostly_by_hand(["flip", "crop-flip"], "crop-flip"))
def test_a_run_trains_as_on_data_augmented_before(augment: str, backend: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, augment, max_steps=5, normalize="0.4 / 0.2, 0.3, 0.1")
    arrays = make_arrays(dtype="uint8", train=EXAMPLES)
    order = drawn(plan).ravel()
    arrays["x_train"][order["example"]] = expected(arrays["x_train"], order)
    before = replace(plan.config, augment="off", dataset=write_npz(tmp_path / "before.npz", arrays))
    told, wanted = (trained(backend, config, tmp_path) for config in (plan.config, before))
    assert_close(told, wanted, in_training(plan.config))


@pytest.mark.by_hand
@pytest.mark.parametrize("augment", mostly_by_hand(["crop-flip", "mixup"], "mixup"))
def test_any_number_of_devices_makes_the_same_curve(augment: str, tmp_path: Path) -> None:
    config = planned(tmp_path, augment, "jax-sharding").config
    one, *others = (curve(train(replace(config, devices=devices))) for devices in (1, 2, 4))
    for other in (*others, curve(train(replace(config, backend="jax-pmap", devices=3)))):
        assert_close(other, one, in_training(config))


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", mostly_by_hand([*JAX_BACKENDS, "torch-dp"], "jax-sharding", "torch-dp"))
@pytest.mark.parametrize("augment", mostly_by_hand(["crop-flip", "mixup"], "crop-flip", "mixup"))
def test_images_that_are_read_are_augmented_as_those_held(augment: str, backend: str, tmp_path: Path) -> None:
    value = write_data(tmp_path, "mapped")
    config = replace(
        CONFIG, backend=backend, dataset=value, devices=one_device(backend), global_batch_size=30, augment=augment
    )
    plan = make_plan(config, user_data.examine(value))
    resident, streamed = (train_plan(replace(plan, streamed=streamed), shelf=Shelf()) for streamed in (False, True))
    assert resident.losses() == streamed.losses()
    assert resident.evaluations == streamed.evaluations
    assert resident.arrays == streamed.arrays


@pytest.mark.parametrize(
    "backend", mostly_by_hand([*JAX_BACKENDS, "torch-dp", "torch-ddp"], "jax-sharding", "torch-ddp")
)
@pytest.mark.parametrize("augment", mostly_by_hand(["crop-flip", "mixup"], "crop-flip", "mixup"))
def test_a_run_goes_on_in_an_epoch_bit_for_bit(augment: str, backend: str, tmp_path: Path) -> None:
    config = planned(tmp_path, augment, backend, devices=1 if "torch" in backend else 2, label_smoothing=0.1).config
    shelf, begin = Shelf(), train if backend in ONE_PROCESS else train_alone
    whole = begin(config, save_at=3, shelf=shelf)
    rest = begin(config, shelf=Shelf(shelf.saved[3]))
    assert rest.losses() == whole.losses()[3:]
    assert len(rest.losses()) == 5
