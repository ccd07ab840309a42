"""The data sets, as data: those with a name, and the user's own by their sources.

The facts of the user's own come from its file, or from a process of its own at the launch: it may execute the user's
code, or take long. Before that only what can be told at once is checked: a file's name and form, and the folders or
the files of its parts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config import npz
from tuiapp.trainers.config.data_files import DatasetError, NotExaminedError
from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.config.user_code import PY, UserCodeError
from tuiapp.trainers.config.user_code import check as check_code
from tuiapp.trainers.tasks import catalog as tasks
from tuiapp.trainers.tasks.catalog import VOCABULARY

FOLDER, HF, NPZ, TEXT = "folder:", "hf:", "npz:", "text:"
"""Prefixes of the user's own data, beside `PY`."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
TEST_PARTS = ("test", "val")
TABLE_SUFFIXES = (".parquet", ".arrow")
TEST_SPLITS = ("test", "validation", "val", "valid", "dev")

TEST_PART = 10
"""One of so many parts of a text is the test part."""
CONTEXT = 128

CHECKED_BYTES = 256 << 20
"""Images up to this size are read and checked before a launch, in about a second."""


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    summary: str
    train_examples: int
    test_examples: int
    input_shape: tuple[int, ...]
    """Height, width, channels; of a window of text its bytes."""
    classes: int
    value_bytes: int = 1
    """Per number of an image in memory: 1 for uint8, 4 for float32; 2 per byte of a text, which is a label, too."""
    checksum: str = ""
    """Checksum of the user's own data: changes when an array, or an image's file, does."""
    split_seed: int | None = None
    """Seed that splits images without a test part; None: they have one."""
    mapped: bool = False
    """Whether the images lie in a file that can be read batch by batch."""
    class_names: tuple[str, ...] = ()
    """Empty if classes are numbers only."""
    task: str = tasks.IMAGES.name
    text_bytes: int = 0
    """Length of a text, from which the examples follow."""

    @property
    def labels(self) -> int:
        """Labels of each example."""
        return self.input_shape[0] if self.text_bytes else 1

    @property
    def decoded_bytes(self) -> int:
        return (self.train_examples + self.test_examples) * prod(self.input_shape) * self.value_bytes


def parts(text_bytes: int) -> tuple[int, int]:
    """Returns the bytes of the training and the test part."""
    test = text_bytes // TEST_PART
    return text_bytes - test, test


def windows(part_bytes: int, context: int) -> int:
    """Returns how many windows a part has, each with the byte after it."""
    return max(0, part_bytes - 1) // context


_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_BYTES = tuple("space" if byte == 32 else repr(bytes([byte]))[2:-1] for byte in range(VOCABULARY))
_PHOTOGRAPHS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _text(name: str, summary: str, text_bytes: int, checksum: str = "") -> Dataset:
    """Returns a text; `find_dataset` divides it into windows of another length."""
    train, test = (windows(part, CONTEXT) for part in parts(text_bytes))
    return Dataset(
        name,
        summary,
        train,
        test,
        input_shape=(CONTEXT,),
        classes=VOCABULARY,
        value_bytes=2,
        checksum=checksum,
        class_names=_BYTES,
        task=tasks.TEXT.name,
        text_bytes=text_bytes,
    )


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
        _text(
            "shakespeare", "a play of Shakespeare's and an act of another: 203 kB of text; ships with tuiapp", 203_485
        ),
    )
}
"""The named data sets."""


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of data of the user's own, which a prefix of the value names."""

    prefix: str
    note: str
    """In the form's menu."""
    ending: str
    """The ending of names that complete a path; no file's ends with "/"."""
    module: str
    """In `tuiapp.trainers.sources`: `load(facts)`, and `examine(value, image_size, seed)` if a launch examines it."""
    check: Callable[[str], object]
    """Checks what can be told of a value at once; raises DatasetError."""
    facts: Callable[[str], Dataset] | None = None
    """Reads the facts; None: a launch finds them out, in a process of its own."""
    is_decoded: bool = False
    """Whether its images are decoded once, by tuiapp's own interpreter, to `image_size`, and kept in the cache."""
    task: str = tasks.IMAGES.name


def source_of(name: str) -> Source | None:
    """Returns the source of the user's own data; None for a named data set, or an unknown one."""
    return next((source for prefix, source in SOURCES.items() if name.startswith(prefix)), None)


def task_of(name: str) -> tasks.Task:
    """Returns what a data set is for, by its name alone."""
    data = DATASETS.get(name) or source_of(name)
    return tasks.TASKS[data.task] if data else tasks.IMAGES


def labels_of(config: Mapping[str, object]) -> tuple[int, str]:
    """Returns how many labels an example has, and what they are called, by a configuration as the journal has it."""
    called, context = task_of(str(config.get("dataset"))).labels, config.get("context")
    return (context, called) if called and isinstance(context, int) else (1, "")


def is_examined(name: str) -> bool:
    """Returns whether a launch finds out the facts: they are not known before."""
    source = source_of(name)
    return source is not None and source.facts is None


def find_dataset(name: str, context: int = CONTEXT) -> Dataset:
    """Returns the facts about a data set, read from the file for npz:PATH and text:PATH.

    A text is divided into windows of `context` bytes. Raises DatasetError if the file is missing or invalid.

    Raises NotExaminedError if nothing is found wrong with a data set whose facts a launch finds out.
    """
    if named := DATASETS.get(name):
        return _in_windows(named, context)
    source = source_of(name)
    if source is None:
        raise DatasetError(f"there is no data set {name!r}.")
    if source.facts is not None:
        return _in_windows(source.facts(name), context)
    source.check(name)
    raise NotExaminedError(f"{name} is not examined before a launch.")


def _in_windows(data: Dataset, context: int) -> Dataset:
    if data.task != tasks.TEXT.name:
        return data
    train, test = (windows(part, context) for part in parts(data.text_bytes))
    if not train or not test:
        message = (
            f"{data.name} has {data.text_bytes:,} bytes, but windows of {context} need {TEST_PART * (context + 1):,}: "
            f"use a longer text, or a smaller context."
        )
        raise DatasetError(message)
    return replace(data, train_examples=train, test_examples=test, input_shape=(context,))


def check_images(name: str) -> None:
    """Reads images of an npz:PATH up to `CHECKED_BYTES`; raises DatasetError if damaged, or not finite."""
    if name.startswith(NPZ) and find_dataset(name).decoded_bytes <= CHECKED_BYTES:
        npz.check_images(absolute(name.removeprefix(NPZ)))


def _check_pillow() -> None:
    if importlib.util.find_spec("PIL") is None:
        raise DatasetError("Pillow, which reads images, is not installed: pip install 'pillow>=11'")


class Parts(NamedTuple):
    train: Path
    test: Path | None
    """None: the images of `train` are split by the seed."""
    classes: tuple[str, ...]
    """The names of the folders in `train`, sorted."""


def find_parts(path: Path) -> Parts:
    """Lists the classes' folders, but no image; raises DatasetError if they cannot be a data set."""
    _check_pillow()
    inside = _folders(path)
    train, test = path, None
    if "train" in inside:
        tests = [part for part in TEST_PARTS if part in inside]
        if not tests:
            raise DatasetError(f"{path} has a folder train, but neither test nor val beside it.")
        train = path / "train"
        # Published test parts often have images without classes.
        test = path / next((part for part in tests if _folders(path / part)), tests[0])
    classes = tuple(_folders(train))
    if len(classes) < 2:
        raise DatasetError(f"{train} has {len(classes)} folders; it must have one for each class, two at least.")
    if test and (other := [name for name in _folders(test) if name not in classes]):
        raise DatasetError(f"{test} has a folder {other[0]}, but {train} has none; both must have the same classes.")
    return Parts(train, test, classes)


def _folders(path: Path) -> list[str]:
    """Returns the names of the folders in a folder, sorted, hidden ones left out."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except NotADirectoryError:
        raise DatasetError(f"{path} is not a folder.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise DatasetError(f"{path} cannot be read: {why}.") from error


class Splits(NamedTuple):
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    """Empty: the examples of `train` are split by the seed."""


def find_splits(path: Path) -> Splits:
    """Finds the files of each split by their names; raises DatasetError if there are none."""
    if importlib.util.find_spec("pyarrow") is None:
        raise DatasetError("pyarrow, which reads parquet files, is not installed: pip install 'pyarrow>=18'")
    _check_pillow()
    try:
        if os.path.isfile(path) and path.suffix in TABLE_SUFFIXES:
            return Splits((path,), ())
        if not os.path.isdir(path):
            problem = "is neither a directory nor a .parquet file" if os.path.exists(path) else "is not there"
            raise DatasetError(f"{path} {problem}.")
        files = sorted(
            file
            for suffix in TABLE_SUFFIXES
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
    """Returns the split that a file belongs to, by its directory or its name, as "train-00000-of-00002.parquet"."""
    names = [file.parent.name, *re.split(r"[-_.]", file.stem)]
    return next((name for name in names if name in ("train", *TEST_SPLITS)), "")


def _check_code(value: str) -> None:
    try:
        check_code(value)
    except UserCodeError as error:
        raise DatasetError(str(error)) from None


def _text_facts(value: str) -> Dataset:
    path = absolute(value.removeprefix(TEXT))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DatasetError(f"{path} is not a file.")
        checksum = _read_checksum(path, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DatasetError(f"{path} cannot be read: {reason}.") from error
    return _text(value, f"{status.st_size:,} bytes of text in {path}", status.st_size, checksum)


@lru_cache(maxsize=64)
def _read_checksum(path: Path, _mtime_ns: int, _size: int) -> str:
    """Reads a text's checksum, cached while the file is unchanged."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _npz_facts(value: str) -> Dataset:
    path = absolute(value.removeprefix(NPZ))
    facts = npz.read_facts(path)
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
            TEXT,
            "your own text, for a language model: any file, by bytes",
            ending=".txt",
            module="text",
            check=_text_facts,
            facts=_text_facts,
            task=tasks.TEXT.name,
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
