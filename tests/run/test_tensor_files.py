"""Files in the safetensors format, held against the package of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from safetensors import numpy as safetensors

from trainers.rank.tensor_files import encode, load

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


def test_what_the_package_writes_is_read(tmp_path: Path) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in ARRAYS.items() if name not in ("brain", "step")}
    safetensors.save_file(arrays, tmp_path / "x.safetensors")
    assert same(load(tmp_path / "x.safetensors"), arrays)


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"".join(encode(ARRAYS))[:-3])
    with pytest.raises(ValueError, match="reshape"):
        load(file)
