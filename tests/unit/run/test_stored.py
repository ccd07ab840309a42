"""Images that are read when they are wanted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tuiapp.trainers.sources.arrays import AHEAD, StoredImages, prefetch

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
