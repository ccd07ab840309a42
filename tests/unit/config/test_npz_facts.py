"""The facts of an .npz, and every way in which one can be wrong."""

from __future__ import annotations

import os
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.npz import NpzArrays, make_arrays, write_npz
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.npz import read_facts

DESCRIPTIONS = st.sampled_from(["'<f8'", "'|u1'", "'|O'", "'<U1'", "3", "[('a', '<f8')]", "'<f9'", "(", "'" + "f" * 90])
FLAGS = st.sampled_from(["False", "True", "None", "0"])
SHAPES = st.one_of(
    st.just("(9, 4, 4)"),
    st.lists(st.integers(-2, 10) | st.integers(), max_size=5).map(lambda sizes: str(tuple(sizes))),
    st.sampled_from(["9", "None", "('a',)", "(1.5,)", "(9, 4, 4", "[9, 4, 4]", "(True, 9)", "(" * 300]),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my data.npz"


def refusal(path: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        find_dataset(f"npz:{path}")
    message = str(caught.value)
    assert str(path) in message
    assert message.isprintable()
    assert len(message) < 600
    return message


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    ("shape", "dtype", "input_shape"),
    [
        ((13, 11, 3), "float64", (13, 11, 3)),
        ((13, 11), "uint8", (13, 11, 1)),
        ((4, 5, 1), "float16", (4, 5, 1)),
        ((7, 7), ">f4", (7, 7, 1)),
    ],
)
def test_facts(
    file: Path, save: Callable[..., None], shape: tuple[int, ...], dtype: str, input_shape: tuple[int, ...]
) -> None:
    arrays = make_arrays(shape, dtype=dtype, classes=4, train=30, test=9)
    arrays["y_test"] = (arrays["y_test"][:, None] + 2).astype(np.uint8)
    save(file, **arrays)
    facts = find_dataset(f"npz:{file}")
    assert (facts.train_examples, facts.test_examples) == (30, 9)
    assert facts.input_shape == input_shape
    # The greatest label is one of the test part's: 3 + 2.
    assert facts.classes == 6


def test_a_changed_file_is_read_anew(file: Path) -> None:
    write_npz(file, make_arrays(classes=3))
    assert read_facts(file).classes == 3
    write_npz(file, make_arrays(classes=5))
    os.utime(file, (1, 1))
    assert read_facts(file).classes == 5
    file.unlink()
    assert "No such file" in refusal(file)


def changed(**arrays: object) -> Callable[[NpzArrays], NpzArrays]:
    return lambda good: {**good, **{name: np.asarray(array) for name, array in arrays.items()}}


def without(name: str) -> Callable[[NpzArrays], NpzArrays]:
    return lambda good: {key: array for key, array in good.items() if key != name}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("y_test"), "no array y_test; it has x_test, x_train, y_train, and needs x_train, y_train"),
        (lambda _: {}, "no array x_train; it has nothing"),
        (changed(x_train=np.zeros((120, 143))), "x_train is float64 [120, 143]; images must be [N, H, W] or"),
        (changed(x_test=np.zeros((48, 1, 13, 11, 3))), "x_test is float64 [48, 1, 13, 11, 3]; images must be [N, H"),
        (
            changed(x_train=np.zeros((120, 13, 11, 3), np.int64)),
            "x_train is int64 [120, 13, 11, 3]; images must be uint8",
        ),
        (changed(x_train=np.zeros((120, 13, 11, 3), bool)), "images must be uint8 from 0 to 255, or floats"),
        (changed(x_train=np.zeros((120, 13, 11, 3), complex)), "images must be uint8 from 0 to 255, or floats"),
        (changed(x_train=np.full((120, 13, 11, 3), "a")), "images must be uint8 from 0 to 255, or floats"),
        (changed(x_train=np.full((120, 13, 11, 3), None)), "only arrays of numbers are read, never Python objects"),
        (
            changed(y_train=np.array([object()] * 120)),
            "y_train is object [120]; only arrays of numbers are read, never Python objects",
        ),
        (changed(x_train=np.zeros((0, 13, 11, 3))), "x_train is float64 [0, 13, 11, 3]; it must not be empty"),
        (changed(x_test=np.zeros((48, 13, 0, 3))), "it must not be empty"),
        (changed(x_train=1.0), "x_train is float64 []; it must not be empty"),
        (changed(y_train=np.zeros(119, int)), "y_train is int64 [119]; there must be one label for each image"),
        (changed(x_test=np.zeros((48, 13, 12, 3))), "both must have images of the same size"),
        (changed(x_test=np.zeros((48, 13, 11, 3), np.uint8)), "either both are uint8 from 0 to 255 or both are floats"),
        (changed(y_train=np.zeros(120)), "y_train is float64 [120]; labels must be integers"),
        (changed(y_train=np.zeros(120, bool)), "y_train is bool [120]; labels must be integers"),
        (changed(y_train=np.zeros((120, 3), int)), "y_train is int64 [120, 3]; labels must be [N] or [N, 1]"),
        (changed(y_test=np.arange(48) - 1), "y_test has the label -1; labels count from 0"),
        (changed(y_test=np.arange(48) + (1 << 40)), "y_test has the label 1,099,511,627,823; it must be below 65,536"),
        (changed(y_test=np.full(48, 2**64 - 1, np.uint64)), "y_test has the label 18,446,744,073,709,551,615"),
    ],
)
def test_wrong_arrays(file: Path, change: Callable[[NpzArrays], NpzArrays], said: str) -> None:
    write_npz(file, change(make_arrays()))
    assert said in refusal(file)


def test_no_file(file: Path, tmp_path: Path) -> None:
    assert "No such file" in refusal(file)
    assert "is not a file" in refusal(tmp_path)
    assert "Not a directory" in refusal(Path(__file__) / "x.npz")
    assert "name too long" in refusal(tmp_path / ("x" * 300))
    os.mkfifo(file)
    assert "is not a file" in refusal(file)


def test_something_else(file: Path) -> None:
    for data in (b"", b"no data", b"\x80\x04N.", b"PK\x03\x04" + b"\0" * 100):
        file.write_bytes(data)
        assert "is not an .npz file, or is damaged" in refusal(file)
    np.save(file.with_suffix(".npy"), np.zeros(3))
    file.write_bytes(file.with_suffix(".npy").read_bytes())
    assert "is not an .npz file, or is damaged" in refusal(file)


def test_a_header_that_promises_more_than_is_there(file: Path) -> None:
    write_npz(file, make_arrays())
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data.replace(b"(120, 13, 11, 3)", b"(999999999, 9,9)"))
    assert "bytes, but the file holds 411,840" in refusal(file)


@given(
    st.sampled_from([1, 2, 3]),
    st.text(max_size=40)
    | st.builds("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}".format, DESCRIPTIONS, FLAGS, SHAPES),
)
def test_a_header_may_say_anything(version: int, text: str) -> None:
    """It is refused in a sentence, if it is not that of the array."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "my data.npz")
        arrays = make_arrays((4, 4), train=9, test=6)
        size, encoding = ("<H", "latin1") if version == 1 else ("<I", "utf-8")
        header = text.encode(encoding, "replace") + b"\n"
        np.savez(file, **without("x_train")(arrays))
        with zipfile.ZipFile(file, "a") as archive:
            magic = b"\x93NUMPY" + bytes((version, 0)) + struct.pack(size, len(header))
            archive.writestr("x_train.npy", magic + header + arrays["x_train"].tobytes())
        try:
            facts = read_facts(file)
        except DatasetError as error:
            message = str(error)
        else:
            assert (facts.train_examples, facts.input_shape) == (9, (4, 4, 1))
            return
    assert str(file) in message
    assert message.isprintable()
    assert len(message) < 600


@pytest.mark.nightly
def test_a_file_that_was_cut_off_or_has_a_flipped_bit(file: Path) -> None:
    write_npz(file, make_arrays((4, 4), train=9, test=6))
    good = file.read_bytes()
    facts = read_facts(file)
    for size in range(0, len(good), len(good) // 40):
        file.write_bytes(good[:size])
        refusal(file)
    damaged = 0
    for place in range(0, len(good), 3):
        file.write_bytes(good[:place] + bytes((good[place] ^ 0x10,)) + good[place + 1 :])
        os.utime(file, (place, place))
        try:
            # What is in the images' part is for whoever reads the images.
            assert read_facts(file).train_examples == facts.train_examples
        except DatasetError:
            damaged += 1
    assert damaged > 20
