"""Loading an .npz of one's own."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.sources.datasets import load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.npz"


def refusal(name: str) -> str:
    with pytest.raises(DatasetError) as caught:
        load(find_dataset(name))
    assert name.removeprefix("npz:") in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8"])
def test_floats_are_taken_as_they_are(file: Path, dtype: str) -> None:
    arrays = make_arrays(dtype=dtype)
    arrays["x_train"] = np.asfortranarray(arrays["x_train"] * 10 - 5)
    data = load(find_dataset(write_npz(file, arrays)))
    assert data.x_train.dtype == data.x_test.dtype == np.float32
    assert data.x_train.flags.c_contiguous
    assert data.x_train.flags.writeable
    assert (data.x_train == arrays["x_train"].astype(np.float32)).all()
    assert (data.y_train == arrays["y_train"]).all()


def test_float64_is_in_memory_only_as_float32(file: Path) -> None:
    facts = find_dataset(write_npz(file, make_arrays((64, 64, 3), train=300, test=2)))
    tracemalloc.start()
    try:
        load(facts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < facts.decoded_bytes + (8 << 20)


def test_bytes_stay_bytes_and_grey_images_get_a_channel(file: Path) -> None:
    arrays = make_arrays((13, 11), dtype="uint8")
    arrays["y_train"] = arrays["y_train"].astype(np.uint8)[:, None]
    data = load(find_dataset(write_npz(file, arrays)))
    assert data.x_train.dtype == np.uint8
    assert data.x_train.shape == (120, 13, 11, 1)
    assert data.y_train.dtype == np.int64
    assert data.y_train.shape == (120,)


@pytest.mark.parametrize(("value", "said"), [(np.nan, "is nan"), (-np.inf, "is -inf"), (1e300, "is 1e+300")])
def test_numbers_that_are_not_finite(file: Path, value: float, said: str) -> None:
    arrays = make_arrays()
    arrays["x_test"][7, 1, 2, 0] = value
    with np.errstate(over="ignore"):
        message = refusal(write_npz(file, arrays))
    assert f"x_test[7, 1, 2, 0] {said}; images must be finite float32 numbers" in message


def test_a_file_that_changed_since_the_launch_is_refused(file: Path) -> None:
    facts = find_dataset(write_npz(file, make_arrays(classes=3)))
    write_npz(file, make_arrays(classes=5))
    with pytest.raises(DatasetError, match="was changed while the run was starting"):
        load(facts)
