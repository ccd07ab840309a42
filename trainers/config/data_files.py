"""The files of downloadable data sets, and where they are looked for; and how an unusable data set is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuiapp.trainers.config.files import user_cache

DATA_DIR = "TUIAPP_DATA_DIR"


@dataclass(frozen=True, slots=True)
class DataFile:
    name: str
    bytes: int
    sha256: str
    urls: tuple[str, ...]
    """In the order in which they are tried."""
    unpacked_sha256: str = ""
    """Checksum of the file without its .gz, if that is accepted as well."""


def _idx_files(mirrors: tuple[str, ...], *files: tuple[str, int, str, str]) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(name, size, packed, tuple(f"{mirror}{name}" for mirror in mirrors), unpacked)
        for name, size, packed, unpacked in files
    )


# The checksums of the packed files are those of TensorFlow Datasets (tensorflow_datasets/url_checksums).
FILES: dict[str, tuple[DataFile, ...]] = {
    "mnist": _idx_files(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion-mnist": _idx_files(
        (
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        (
            "train-images-idx3-ubyte.gz",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "cifar10": (
        DataFile(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
            ),
        ),
    ),
}
"""Data set → its files: for MNIST's format training images, training labels, test images, test labels."""


def cache_dir(dataset: str) -> Path:
    """Returns where a data set's downloaded files are kept."""
    return user_cache() / "datasets" / dataset


def data_dir() -> Path | None:
    """Returns the folder that `TUIAPP_DATA_DIR` names, or None."""
    named = os.environ.get(DATA_DIR)
    return Path(os.path.expanduser(named)).absolute() if named else None


def provided(dataset: str, file: DataFile) -> Iterator[tuple[Path, str]]:
    """Yields where in `TUIAPP_DATA_DIR` a file may be, and its required sha256."""
    if folder := data_dir():
        for directory in (folder / dataset, folder):
            yield directory / file.name, file.sha256
            if file.unpacked_sha256:
                yield directory / file.name.removesuffix(".gz"), file.unpacked_sha256


def where(dataset: str) -> Path | None:
    """Returns the folder that has all of a data set's files; None if something must be downloaded."""
    folder: Path | None = None
    for file in FILES[dataset]:
        places = [path for path, _ in provided(dataset, file)]
        there = next((path for path in (*places, cache_dir(dataset) / file.name) if os.path.isfile(path)), None)
        if there is None:
            return None
        folder = folder or there.parent
    return folder


class DatasetError(Exception):
    """A data set cannot be used; the message is for the user: it names the file, what is wrong, and what to do."""


class NotExaminedError(DatasetError):
    """A data set's facts are not known before a launch, which examines it in a process of its own."""
