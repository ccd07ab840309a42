"""A saved Hugging Face data set of images, hf:PATH. `tuiapp.trainers.config.datasets` finds its files.

Each file has a column of images, whose cells are encoded bytes or have them in a field `bytes`, and one of labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import HF, Dataset, find_splits
from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.config.npz import greatest_label
from tuiapp.trainers.sources.arrays import Labels, StoredArrays, split_examples, split_rows
from tuiapp.trainers.sources.image_cache import CHANNELS, Picture, decode_all

LABEL_NAMES = ("label", "labels", "class", "target")
ROWS_AT_ONCE = 256


def examine(value: str, image_size: int, seed: int) -> Dataset:
    """Returns the facts, from the labels alone; raises DatasetError if it is no data set of images."""
    path = absolute(value.removeprefix(HF))
    splits = find_splits(path)
    train, test = _read_labels(splits.train), _read_labels(splits.test)
    counts = (len(train), len(test)) if splits.test else split_examples(len(train))
    if min(counts) < 1:
        raise DatasetError(f"{path} has {counts[0]:,} training and {counts[1]:,} test examples; there must be some.")
    return Dataset(
        value,
        f"{counts[0]:,} training images in {path}",
        *counts,
        (image_size, image_size, CHANNELS),
        1 + int(max(labels.max() for labels in (train, test) if len(labels))),
        checksum=_key(path, image_size),
        mapped=True,
        split_seed=None if splits.test else seed,
    )


def load(facts: Dataset) -> StoredArrays:
    """Decodes the images, unless another process has; raises DatasetError."""
    path, size = absolute(facts.name.removeprefix(HF)), facts.input_shape[0]
    if _key(path, size) != facts.checksum:
        raise DatasetError(f"{path} was changed while the run was starting; start it again.")
    splits = find_splits(path)
    files = (*splits.train, *splits.test)
    return split_rows(*decode_all(facts.checksum, str(path), _read_labels(files), size, _pictures(files)), facts)


def _key(path: Path, image_size: int) -> str:
    """Changes with the files' names, sizes and times of change, and the size of the images."""
    digest = hashlib.sha256(f"hf 1 {image_size}".encode())
    for files in find_splits(path):
        for file in files:
            facts = file.stat()
            digest.update(f"{file} {facts.st_size} {facts.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()[:32]


def _read_labels(files: Iterable[Path]) -> Labels:
    parts = [np.zeros(0, np.int64)]
    for file in files:
        with _reading(file):
            schema = _schema(file)
            name = _label_column(file, schema)
            _image_column(file, schema)
            for batch in _batches(file, name):
                if batch.column(0).null_count:
                    raise DatasetError(f"{file}: some labels in {name} are missing.")
                labels = batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64)
                if len(labels):
                    greatest_label(str(file), name, labels)
                parts.append(labels)
    return np.concatenate(parts)


def _pictures(files: Iterable[Path]) -> Iterator[Picture]:
    for file in files:
        with _reading(file):
            name, row = _image_column(file, _schema(file)), 0
            for batch in _batches(file, name):
                for cell in batch.column(0).to_pylist():
                    content = cell.get("bytes") if isinstance(cell, dict) else cell
                    if content is None:
                        raise DatasetError(f"{file}: image {row} has no bytes; save the data set with its images.")
                    yield Picture(f"image {row} of {file}", content)
                    row += 1


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise DatasetError(f"{file} cannot be read: {reason}. Write the file again, or copy it again.") from error


def _schema(file: Path) -> pa.Schema:
    if file.suffix == ".parquet":
        return pq.read_schema(file)
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_stream(source).schema


def _batches(file: Path, column: str) -> Iterator[Any]:
    """Yields one column of a file, some rows at a time."""
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(ROWS_AT_ONCE, columns=[column])
        return
    with pa.memory_map(str(file)) as source:
        for batch in pa.ipc.open_stream(source):
            yield batch.select([column])


def _image_column(file: Path, schema: pa.Schema) -> str:
    for field in schema:
        kind = field.type
        if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind = kind.field("bytes").type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return str(field.name)
    raise DatasetError(f"{file} has the columns {', '.join(schema.names)}; none has images, as encoded bytes.")


def _label_column(file: Path, schema: pa.Schema) -> str:
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    candidates = [name for name in LABEL_NAMES if name in integers] or integers
    if candidates and (len(integers) == 1 or candidates[0] in LABEL_NAMES):
        return str(candidates[0])
    problem = f"{', '.join(integers) or 'none'} of its columns {', '.join(schema.names)} are integers"
    raise DatasetError(f"{file}: {problem}; the labels must be in one, or in one called {' or '.join(LABEL_NAMES)}.")
