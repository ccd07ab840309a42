"""A saved Hugging Face data set, hf:PATH: parquet files, or a directory of `save_to_disk`. Only names are read here."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.data_files import DatasetError

HF = "hf:"

TEST_SPLITS = ("test", "validation", "val", "valid", "dev")
SUFFIXES = (".parquet", ".arrow")


class Splits(NamedTuple):
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    """Empty: the examples of `train` are split by the seed."""


def find_splits(path: Path) -> Splits:
    """Finds the files of each split by their names; raises DatasetError if there are none."""
    if importlib.util.find_spec("pyarrow") is None:
        raise DatasetError("pyarrow, which reads parquet files, is not installed: pip install 'pyarrow>=18'")
    if importlib.util.find_spec("PIL") is None:
        raise DatasetError("Pillow, which reads images, is not installed: pip install 'pillow>=11'")
    try:
        if os.path.isfile(path) and path.suffix in SUFFIXES:
            return Splits((path,), ())
        if not os.path.isdir(path):
            found = "is neither a directory nor a .parquet file" if os.path.exists(path) else "is not there"
            raise DatasetError(f"{path} {found}.")
        files = sorted(
            file
            for suffix in SUFFIXES
            for depth in ("", "*/")
            for file in path.glob(f"{depth}*{suffix}")
            # `datasets` caches the results of its operations beside the data.
            if not file.name.startswith((".", "cache-"))
        )
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not files:
        raise DatasetError(f"{path} has neither .parquet files nor .arrow files of save_to_disk.")
    named = {file: _split(file.relative_to(path)) for file in files}
    splits = {split for split in named.values() if split}
    if not splits:
        return Splits(tuple(files), ())
    if "train" not in splits:
        raise DatasetError(f"{path} has the splits {', '.join(sorted(splits))}, but no train.")
    test = next((split for split in TEST_SPLITS if split in splits), None)
    return Splits(
        tuple(file for file in files if named[file] == "train"),
        tuple(file for file in files if test and named[file] == test),
    )


def _split(file: Path) -> str:
    """The split that a file belongs to, by its directory or its name, such as "train-00000-of-00002.parquet"."""
    words = [file.parent.name, *re.split(r"[-_.]", file.stem)]
    return next((word for word in words if word in ("train", *TEST_SPLITS)), "")
