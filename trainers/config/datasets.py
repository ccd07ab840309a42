"""The data sets, as data: those with a name, and the user's own.

The facts of the user's own come from its file, or from a process of its own at the launch: it may execute the user's
code, or take long. Before that only what can be told at once is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from trainers.config import npz as npz_facts
from trainers.config.data_files import DatasetError, NotExaminedError
from trainers.config.files import absolute
from trainers.config.image_folder import FOLDER, find_parts
from trainers.config.npz import read_facts
from trainers.config.saved_dataset import HF, find_splits
from trainers.config.user_code import PY, UserCodeError
from trainers.config.user_code import check as check_code


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    summary: str
    train_examples: int
    test_examples: int
    input_shape: tuple[int, int, int]
    """Height, width, channels."""
    classes: int
    value_bytes: int = 1
    """Per number of an image in memory: 1 for uint8, 4 for float32."""
    checksum: str = ""
    """Of the user's own data: changes when an array, or an image's file, does."""
    split_seed: int | None = None
    """Seed that splits images without a test part; None: they have one."""
    mapped: bool = False
    """Whether the images lie in a file that can be read batch by batch."""
    class_names: tuple[str, ...] = ()
    """Empty if classes are numbers only."""

    @property
    def decoded_bytes(self) -> int:
        return (self.train_examples + self.test_examples) * prod(self.input_shape) * self.value_bytes


_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_PHOTOGRAPHS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "digits",
            "1,797 handwritten digits of the UCI optdigits test part, shown as 28×28; ships with tuiapp",
            train_examples=1437,
            test_examples=360,
            input_shape=(28, 28, 1),
            classes=10,
        ),
        Dataset(
            "mnist",
            "60,000 handwritten digits, 28×28; downloads 12 MB once",
            train_examples=60_000,
            test_examples=10_000,
            input_shape=(28, 28, 1),
            classes=10,
        ),
        Dataset(
            "fashion-mnist",
            "60,000 pictures of clothes, 28×28; downloads 31 MB once",
            train_examples=60_000,
            test_examples=10_000,
            input_shape=(28, 28, 1),
            classes=10,
            class_names=_CLOTHES,
        ),
        Dataset(
            "cifar10",
            "50,000 photographs, 32×32 in colour; downloads 170 MB once",
            train_examples=50_000,
            test_examples=10_000,
            input_shape=(32, 32, 3),
            classes=10,
            class_names=_PHOTOGRAPHS,
        ),
    )
}
"""The named data sets."""

NPZ = "npz:"

CHECKED_BYTES = 256 << 20
"""Images up to this size are read and checked before a launch, in about a second."""


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of data of the user's own, which a prefix of the value names."""

    prefix: str
    note: str
    """In the form's menu."""
    ending: str
    """Of the names that complete a path; no file's ends with "/"."""
    module: str
    """Of `trainers.sources`: has `load(facts)`, and where a launch examines it `examine(value, image_size, seed)`."""
    check: Callable[[str], object]
    """Checks what can be told of a value at once; raises DatasetError."""
    facts: Callable[[str], Dataset] | None = None
    """Reads the facts; None: a launch finds them out, in a process of its own."""
    is_decoded: bool = False
    """Whether its images are decoded once, by tuiapp's own interpreter, to `image_size`, and kept in the cache."""


def _check_code(value: str) -> None:
    try:
        check_code(value)
    except UserCodeError as error:
        raise DatasetError(str(error)) from None


def _npz_facts(value: str) -> Dataset:
    path = absolute(value.removeprefix(NPZ))
    facts = read_facts(path)
    return Dataset(
        value,
        f"{facts.train_examples:,} training images in {path}",
        facts.train_examples,
        facts.test_examples,
        facts.input_shape,
        facts.classes,
        facts.value_bytes,
        facts.checksum,
    )


SOURCES = {
    source.prefix: source
    for source in (
        Source(
            PY,
            "your own, FILE:NAME: () → x_train, y_train, x_test, y_test",
            ending=".py",
            module="user_data",
            check=_check_code,
        ),
        Source(
            FOLDER,
            "your own images: a folder per class, below train and test",
            ending="/",
            module="image_folder",
            check=lambda value: find_parts(absolute(value.removeprefix(FOLDER))),
            is_decoded=True,
        ),
        Source(
            HF,
            "your own images: parquet files, or a directory of save_to_disk",
            ending=".parquet",
            module="saved_dataset",
            check=lambda value: find_splits(absolute(value.removeprefix(HF))),
            is_decoded=True,
        ),
        Source(
            NPZ,
            "your own .npz: x_train, y_train, x_test and y_test",
            ending=".npz",
            module="npz",
            check=_npz_facts,
            facts=_npz_facts,
        ),
    )
}
"""Prefix → source."""


def source_of(name: str) -> Source | None:
    """Returns the source of the user's own data; None for a named data set, or an unknown one."""
    return next((source for prefix, source in SOURCES.items() if name.startswith(prefix)), None)


def is_examined(name: str) -> bool:
    """Whether a launch finds out the facts: they are not known before."""
    source = source_of(name)
    return source is not None and source.facts is None


def find_dataset(name: str) -> Dataset:
    """The facts about a data set, read from the file for npz:PATH; raises DatasetError if it is missing or invalid.

    Raises NotExaminedError if nothing is found wrong with a data set whose facts a launch finds out.
    """
    if known := DATASETS.get(name):
        return known
    source = source_of(name)
    if source is None:
        raise DatasetError(f"there is no data set {name!r}.")
    if source.facts is not None:
        return source.facts(name)
    source.check(name)
    raise NotExaminedError(f"{name} is not examined before a launch.")


def check_images(name: str) -> None:
    """Reads images of an npz:PATH up to `CHECKED_BYTES`; raises DatasetError if damaged, or not finite."""
    if name.startswith(NPZ) and find_dataset(name).decoded_bytes <= CHECKED_BYTES:
        npz_facts.check_images(absolute(name.removeprefix(NPZ)))
