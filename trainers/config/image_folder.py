"""A folder of images, folder:PATH: one folder per class, below `train` and `test` or `val`, or in PATH itself."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.data_files import DatasetError

FOLDER = "folder:"

TEST_PARTS = ("test", "val")

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


class Parts(NamedTuple):
    train: Path
    test: Path | None
    """None: the images of `train` are split by the seed."""
    classes: tuple[str, ...]
    """The names of the folders in `train`, sorted."""


def find_parts(path: Path) -> Parts:
    """Lists the classes' folders, but no image; raises DatasetError if they cannot be a data set."""
    if importlib.util.find_spec("PIL") is None:
        raise DatasetError("Pillow, which reads images, is not installed: pip install 'pillow>=11'")
    inside = _folders(path)
    train, test = path, None
    if "train" in inside:
        found = [part for part in TEST_PARTS if part in inside]
        if not found:
            raise DatasetError(f"{path} has a folder train, but neither test nor val beside it.")
        train = path / "train"
        # Published test parts often have images without classes.
        test = path / next((part for part in found if _folders(path / part)), found[0])
    classes = tuple(_folders(train))
    if len(classes) < 2:
        raise DatasetError(f"{train} has {len(classes)} folders; it must have one for each class, two at least.")
    if test and (other := [name for name in _folders(test) if name not in classes]):
        raise DatasetError(f"{test} has a folder {other[0]}, but {train} has none; both must have the same classes.")
    return Parts(train, test, classes)


def _folders(path: Path) -> list[str]:
    """The names of the folders in a folder, sorted, hidden ones left out."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except NotADirectoryError:
        raise DatasetError(f"{path} is not a folder.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise DatasetError(f"{path} cannot be read: {why}.") from error
