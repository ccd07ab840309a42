"""An .npz to train on, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

NpzArrays = dict[str, Any]


def make_arrays(
    shape: tuple[int, ...] = (13, 11, 3), *, dtype: str = "float64", classes: int = 3, train: int = 120, test: int = 48
) -> NpzArrays:
    """Images that are easily told apart: each class has a pattern of its own, under noise."""
    random = np.random.default_rng(0)
    patterns = random.random((classes, *shape))

    def part(examples: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        labels = np.arange(examples) % classes
        images = patterns[labels] * 0.6 + random.random((examples, *shape)) * 0.4
        return (images * 255 if dtype == "uint8" else images).astype(dtype), labels

    (x_train, y_train), (x_test, y_test) = part(train), part(test)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def write_npz(path: Path, arrays: NpzArrays) -> str:
    """Write the file; gives the data set's name."""
    np.savez(path, **arrays)
    return f"npz:{path}"
