"""The data, and the order in which every backend goes through it."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import DATASETS, find_dataset
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.sources import datasets
from tuiapp.trainers.sources.datasets import DIGITS_FILE, epoch_order, load, remaining


@pytest.mark.parametrize(("examples", "batch"), [(1437, 48), (10, 3), (10, 10), (1, 1), (100, 1)])
def test_an_epoch_goes_through_distinct_examples(examples: int, batch: int) -> None:
    order = epoch_order(examples, batch, seed=1, epoch=1)
    assert order.shape == (examples // batch, batch)
    assert order.dtype == np.int64
    assert len(np.unique(order)) == order.size
    assert order.min() >= 0
    assert order.max() < examples
    if examples % batch == 0:
        assert sorted(order.flatten()) == list(range(examples))


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_the_devices_slices_are_the_global_batch(devices: int) -> None:
    order = epoch_order(1437, 48, seed=0, epoch=1)
    each = 48 // devices
    for batch in order:
        slices = [set(batch[device * each : (device + 1) * each]) for device in range(devices)]
        assert all(not one & other for one, other in pairwise(slices))
        assert set.union(*slices) == set(batch)
        assert sum(map(len, slices)) == 48


def test_the_same_seed_gives_the_same_order_every_time() -> None:
    assert (epoch_order(1437, 48, 7, 3) == epoch_order(1437, 48, 7, 3)).all()
    # Written down, so that another NumPy that shuffles differently is noticed.
    assert epoch_order(10, 10, 0, 1).tolist() == [[9, 1, 3, 8, 7, 6, 0, 4, 2, 5]]


def test_without_shuffling_every_epoch_has_the_order_of_the_data() -> None:
    plan = make_plan(RunConfig(shuffle=False, devices=2, epochs=3))
    for epoch, after, first in ((1, 0, 1), (2, 0, 30), (3, 60, 61)):
        step, order = remaining(plan, epoch, after)
        assert step == first
        assert order.flatten().tolist() == list(range((first - 1) % 29 * 48, 29 * 48))


def test_digits_are_what_the_catalog_says() -> None:
    facts, data = DATASETS["digits"], load(find_dataset("digits"))
    assert data.x_train.shape == (facts.train_examples, *facts.input_shape)
    assert data.x_test.shape == (facts.test_examples, *facts.input_shape)
    assert data.y_train.shape == (facts.train_examples,)
    assert data.y_test.shape == (facts.test_examples,)
    assert data.x_train.dtype == data.x_test.dtype == np.uint8
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    for labels in (data.y_train, data.y_test):
        assert set(labels) == set(range(facts.classes))
    for images in (data.x_train, data.x_test):
        assert (images.min(), images.max()) == (0, 255)


def test_digits_are_enlarged_eight_by_eight_pixels() -> None:
    images = load(find_dataset("digits")).x_train[..., 0]
    border = np.concatenate([images[:, :2], images[:, -2:], images[:, :, :2].mT, images[:, :, -2:].mT], axis=1)
    assert border.max() == 0
    blocks = images[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3)
    assert (blocks == blocks[:, :, :1, :, :1]).all()
    # 17 levels of grey, 0 to 16 sixteenths.
    assert np.unique(images).tolist() == [round(255 * level / 16) for level in range(17)]


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the file that ships, to be damaged."""
    path = tmp_path / "digits.npz"
    shutil.copy(DIGITS_FILE, path)
    monkeypatch.setattr(datasets, "DIGITS_FILE", path)
    assert load(find_dataset("digits")).x_train.any()
    return path


def refused(path: Path) -> bool:
    try:
        load(find_dataset("digits"))
    except DatasetError as error:
        message = str(error)
    else:
        return False
    assert str(path) in message
    assert "install tuiapp again" in message
    return True


def test_a_file_that_was_cut_off(digits: Path) -> None:
    data = digits.read_bytes()
    for size in (0, 1, 4, 100, len(data) // 2, len(data) - 1):
        digits.write_bytes(data[:size])
        assert refused(digits), size


def test_a_flipped_bit_is_detected_or_without_effect(digits: Path) -> None:
    data, right = bytearray(digits.read_bytes()), load(find_dataset("digits"))
    detected = 0
    for place in range(3, len(data), len(data) // 60):
        data[place] ^= 0x10
        digits.write_bytes(data)
        data[place] ^= 0x10
        if refused(digits):
            detected += 1
        else:
            again = load(find_dataset("digits"))
            assert (again.x_train == right.x_train).all()
            assert (again.y_test == right.y_test).all()
    assert detected > 50
