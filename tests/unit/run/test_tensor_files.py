"""Files in the safetensors format, held against the package of that name; checkpoints that are sent in parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from safetensors import numpy as safetensors

from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.tensor_files import BFLOAT16, as_float32, encode, load
from tuiapp.trainers.run.handed_checkpoint import PART_BYTES, HandedCheckpoint, parts
from tuiapp.trainers.run.wire import Part

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "odd": np.arange(3, dtype=np.uint8),
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "step": np.array(7, np.int64),
    "none": np.zeros((0, 5), np.float16),
    "mask": np.array([True, False]),
    "brain": np.asarray(jnp.arange(5, dtype=jnp.bfloat16)),
}


def same(found: dict[str, npt.NDArray[Any]], wanted: dict[str, npt.NDArray[Any]]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == array.dtype and found[name].shape == array.shape and (found[name] == array).all()
        for name, array in wanted.items()
    )


@pytest.mark.parametrize("names", [list(ARRAYS), ["odd"], []])
def test_what_is_written_is_read_by_both(tmp_path: Path, names: list[str]) -> None:
    arrays = {name: ARRAYS[name] for name in names}
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"".join(encode(arrays)))
    assert same(load(file), arrays)
    without = {name: array for name, array in arrays.items() if name != "brain"}
    file.write_bytes(b"".join(encode(without)))
    assert same(safetensors.load_file(file), without)
    assert all(array.flags.writeable for array in load(file).values())


@pytest.mark.parametrize(
    ("changes", "bytes_more", "says"),
    [
        ({}, -3, "odd ends at byte 11 of 8"),
        ({}, 3, "3 bytes at its end are of no array"),
        (
            {"odd": {"data_offsets": [7, 10]}},
            0,
            r"odd, U8 of shape \[3\], is said to be at bytes 7 to 10, where .* at 8",
        ),
        ({"odd": {"data_offsets": [9, 12]}}, 1, r"odd, .* at bytes 9 to 12, where the array before it ends at 8"),
        ({"w": {"data_offsets": [-8, 0]}}, 0, r"w, F32 of shape \[2\], is said to be at bytes -8 to 0, where .* at 0"),
        ({"w": {"shape": [-1, -2]}}, 0, r"w, F32 of shape \[-1, -2\], is said to be"),
        ({"w": {"shape": [3]}}, 0, r"w, F32 of shape \[3\], is said to be"),
        (
            {"w": {"shape": [1 << 38], "data_offsets": [0, 1 << 40]}, "odd": None},
            0,
            "w ends at byte 1,099,511,627,776 of 11",
        ),
        ({"odd": {"shape": [1 << 70, 0], "data_offsets": [8, 8]}}, 0, "3 bytes at its end"),
    ],
)
def test_a_damaged_file_is_not_read(
    tmp_path: Path, changes: dict[str, dict[str, object] | None], bytes_more: int, says: str
) -> None:
    header: dict[str, dict[str, object]] = {
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "odd": {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]},
    }
    told = {name: {**entry, **(changes.get(name) or {})} for name, entry in header.items() if changes.get(name, 1)}
    text = json.dumps(told).encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(11 + bytes_more))
    with pytest.raises(ValueError, match=f"^{says}"):
        load(file)


def test_what_has_no_place_in_a_file_is_named() -> None:
    arrays = {**ARRAYS, "spectrum.weight": np.ones(2, np.complex64)}
    with pytest.raises(TypeError, match=r"^spectrum\.weight is complex64; an array can be float64, float32, .* uint8$"):
        list(encode(arrays))


def test_bfloat16_is_written_and_read_without_numpys_knowing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.array([[1.5, -2.0], [3e38, np.nan]], np.float32)
    known = np.asarray(jnp.array(values, jnp.bfloat16))
    file = tmp_path / "x.safetensors"
    arrays = {"known": known, "bits": known.view(BFLOAT16), "one": known[0, 0].view(BFLOAT16)}
    file.write_bytes(b"".join(encode(arrays)))
    assert {name: array.dtype for name, array in load(file).items()} == dict.fromkeys(arrays, known.dtype)
    monkeypatch.setattr("tuiapp.trainers.rank.tensor_files._knows_bfloat16", lambda: False)
    found = load(file)
    for array in (*found.values(), known):
        wanted = known.astype(np.float32) if array.shape else np.float32(1.5)
        np.testing.assert_array_equal(as_float32(array), wanted)
        assert (as_float32(array).dtype, as_float32(array).shape) == (np.dtype(np.float32), array.shape)
    assert found["bits"].dtype == BFLOAT16
    assert as_float32(values) is values


FILES = {"model.safetensors": b"ab" * PART_BYTES + b"c", "state.safetensors": b"d" * PART_BYTES, "manifest.json": b"{}"}


def test_it_arrives_as_it_was_and_replaces_the_one_before(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints/step-00000005"
    checkpoint.mkdir(parents=True)
    for name, data in FILES.items():
        (checkpoint / name).write_bytes(data)
    run = RunDir(tmp_path / "node-b")
    HandedCheckpoint(run, "step-00000003")
    given = HandedCheckpoint(run, checkpoint.name)
    sent = list(parts(checkpoint))
    assert max(len(part.data) for part in sent) == PART_BYTES
    assert [given.take(part) for part in sent] == [*[False] * (len(sent) - 1), True]
    assert {path.name: path.read_bytes() for path in given.path.iterdir()} == FILES
    assert list(run.checkpoints.iterdir()) == [given.path]


@pytest.mark.parametrize("name", ["../model.safetensors", "/tmp/model.safetensors"])
def test_no_file_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    given = HandedCheckpoint(RunDir(tmp_path), "../../step-00000005")
    given.take(Part(name, b"a"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [
        tmp_path / "checkpoints/step-00000005/model.safetensors"
    ]
