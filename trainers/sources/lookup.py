"""Opens the user's own data by its source: see `tuiapp.trainers.config.datasets.SOURCES`."""

from __future__ import annotations

import importlib
from types import ModuleType

from tuiapp.trainers.config.datasets import Dataset, source_of
from tuiapp.trainers.sources.arrays import StoredArrays, split_rows
from tuiapp.trainers.sources.image_cache import open_cached


def module_of(name: str) -> ModuleType:
    """Returns what reads a data set of the user's own, imported when it is wanted: some take Pillow, or pyarrow."""
    source = source_of(name)
    assert source is not None
    return importlib.import_module(f"tuiapp.trainers.sources.{source.module}")


def open_stored(data: Dataset) -> StoredArrays:
    """Opens a data set that a launch has examined; its images are read when they are wanted. Raises DatasetError."""
    source = source_of(data.name)
    if source is not None and source.is_decoded and (found := open_cached(data.checksum)) is not None:
        return split_rows(*found, data)
    stored: StoredArrays = module_of(data.name).load(data)
    return stored
