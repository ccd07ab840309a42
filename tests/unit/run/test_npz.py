"""Data files of one's own as .npz, and images that are read when they are wanted."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.sources.arrays import AHEAD, StoredImages, prefetch
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


SHAPES = [(50, 6, 5), (50, 6, 5, 3)]


def make(tmp_path: Path, shape: tuple[int, ...], dtype: str, kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    array = (np.random.default_rng(0).random(shape) * 255).astype(dtype)
    if kind == "array":
        return array, array
    np.save(tmp_path / "x.npy", array)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    return (mapped[10:], array[10:]) if kind == "part" else (mapped, array)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "float64", "float32", ">f2"])
@pytest.mark.parametrize("kind", ["array", "map", "part"])
def test_they_are_those_of_the_array(tmp_path: Path, shape: tuple[int, ...], dtype: str, kind: str) -> None:
    source, array = make(tmp_path, shape, dtype, kind)
    wanted = array.astype("uint8" if dtype == "uint8" else "float32").reshape(*array.shape[:3], -1)
    images = StoredImages(source)
    assert (images.shape, images.dtype, images.nbytes, len(images)) == (
        wanted.shape,
        wanted.dtype,
        wanted.nbytes,
        len(wanted),
    )
    assert images.is_mapped == (kind != "array")
    rows = np.array([7, 3, 3, 39])
    for found, expected in (
        (images[rows], wanted[rows]),
        (images[5:9], wanted[5:9]),
        (images[:], wanted),
        (images.part(slice(1, None, 3))[rows % 4], wanted[1::3][rows % 4]),
        (images.part(rows)[1:], wanted[rows][1:]),
        (images.part(rows).part(slice(1, 3))[:], wanted[rows][1:3]),
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "float64", "float32", ">f2"])
@pytest.mark.parametrize("kind", ["array", "map", "part"])
def test_they_are_read_into_memory_that_is_given(tmp_path: Path, shape: tuple[int, ...], dtype: str, kind: str) -> None:
    images = StoredImages(make(tmp_path, shape, dtype, kind)[0])
    rows = np.array([7, 3, 3, 39])
    for source, wanted in ((images, rows), (images, slice(5, 9)), (images.part(slice(1, None, 3)), rows % 4)):
        memory = np.full((4, *images.shape[1:]), 99, images.dtype)
        source.read_into(wanted, memory)
        np.testing.assert_array_equal(memory, source[wanted])


def test_a_file_that_was_cut_is_said_in_words(tmp_path: Path) -> None:
    source, _ = make(tmp_path, (50, 6, 5), "uint8", "map")
    images = StoredImages(source)
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(500)
    assert images[:5].any()
    with pytest.raises(OSError, match="the images' file ends before byte 1,328: it was cut while the run read it"):
        images[40:]


def test_batches_are_read_before_the_first_is_asked_for() -> None:
    """So that those of the next epoch are there when this one, and its evaluation, are done."""
    begun = threading.Semaphore(0)

    def read(number: int) -> int:
        begun.release()
        return -number

    batches = prefetch(range(2 * AHEAD), read)
    assert all(begun.acquire(timeout=5) for _ in range(AHEAD))
    assert not begun.acquire(blocking=False)
    assert [*batches] == [-number for number in range(2 * AHEAD)]
