"""A folder of images, folder:PATH. `tuiapp.trainers.config.datasets` says how it must be made."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import FOLDER, SUFFIXES, Dataset, find_parts
from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.sources.arrays import StoredArrays, split_examples, split_rows
from tuiapp.trainers.sources.image_cache import CHANNELS, Picture, decode_all

LAYOUT = 1
"""Version of the caches: a higher number makes them anew."""


class Listing(NamedTuple):
    """All images of a folder, those of training first."""

    files: list[Path]
    labels: list[int]
    train_examples: int
    """All, if the seed splits them."""
    splits: bool
    classes: tuple[str, ...]
    key: str
    """Changes with the files' names, sizes and times of change, and the size of the images."""


def examine(value: str, image_size: int, seed: int) -> Dataset:
    """Returns the facts, without decoding anything; raises DatasetError if it is no data set."""
    listing = read_listing(absolute(value.removeprefix(FOLDER)), image_size)
    train, test = listing.train_examples, len(listing.files) - listing.train_examples
    if listing.splits:
        train, test = split_examples(len(listing.files))
    return Dataset(
        value,
        f"{train:,} training images in {value.removeprefix(FOLDER)}",
        train,
        test,
        (image_size, image_size, CHANNELS),
        len(listing.classes),
        checksum=listing.key,
        mapped=True,
        class_names=listing.classes,
        split_seed=seed if listing.splits else None,
    )


def load(facts: Dataset) -> StoredArrays:
    """Decodes the images, unless another process has; raises DatasetError."""
    size, path = facts.input_shape[0], absolute(facts.name.removeprefix(FOLDER))
    listing = read_listing(path, size)
    if listing.key != facts.checksum:
        raise DatasetError(f"{path} was changed while the run was starting; start it again.")
    pictures = (Picture(str(file), file) for file in listing.files)
    return split_rows(*decode_all(listing.key, str(path), np.array(listing.labels), size, pictures), facts)


def read_listing(path: Path, image_size: int) -> Listing:
    """Lists all images; raises DatasetError if a class has none, or a folder cannot be read."""
    train, test, classes = find_parts(path)
    digest = hashlib.sha256(f"{LAYOUT} {image_size}".encode())
    files: list[Path] = []
    labels: list[int] = []
    counts = []
    for part in (train, test):
        for label, name in enumerate(classes):
            images = _images(part / name, digest) if part else []
            if part == train and not images:
                kinds = ", ".join(SUFFIXES)
                raise DatasetError(f"{train / name} has no image ({kinds}); delete the folder if it is not a class.")
            files += images
            labels += [label] * len(images)
        counts.append(len(files))
    if test and counts[0] == counts[1]:
        raise DatasetError(f"{test} has no image ({', '.join(SUFFIXES)}) in a folder of a class.")
    return Listing(files, labels, counts[0], test is None, classes, digest.hexdigest()[:32])


def _images(folder: Path, digest: hashlib._Hash) -> list[Path]:
    """Returns the images in a class's folder, sorted; a class may be missing in the test part."""
    images = []
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file():
                    facts = entry.stat()
                    line = f"{folder.parent.name}/{folder.name}/{entry.name} {facts.st_size} {facts.st_mtime_ns}\n"
                    digest.update(line.encode("utf-8", "surrogateescape"))
                    images.append(Path(entry.path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror}.") from error
    return images
