"""A text of the user's own, text:PATH, or one that ships; `config.datasets` says what its examples are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import TEXT, Dataset, parts
from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.sources.arrays import Arrays, Tokens


def load(facts: Dataset) -> Arrays:
    """Loads text:PATH; raises DatasetError if it is missing, or changed since the run was started."""
    return read(absolute(facts.name.removeprefix(TEXT)), facts)


def read(path: Path, facts: Dataset) -> Arrays:
    """Loads a file: windows, uint8 [N, context], and the byte after each of their bytes, uint8 [N, context]."""
    try:
        text = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(text) != facts.text_bytes:
        raise DatasetError(f"{path} was changed while the run was starting; start it again.")
    middle, _ = parts(len(text))
    return Arrays(
        *_windows(text[:middle], facts.train_examples, *facts.input_shape),
        *_windows(text[middle:], facts.test_examples, *facts.input_shape),
    )


def _windows(part: npt.NDArray[np.uint8], count: int, context: int) -> tuple[Tokens, Any]:
    size = count * context
    return part[:size].reshape(count, context), part[1 : size + 1].reshape(count, context)
