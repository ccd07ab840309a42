"""Writes and reads arrays in the safetensors format: https://github.com/huggingface/safetensors#format.

A file is a length, as 8 little-endian bytes, a JSON header of that length (name → dtype, shape, offsets into what
follows), and the arrays without gaps. The package of that name is not needed: an interpreter that runs ranks has only
NumPy, msgspec and its framework. It would also copy all arrays before it writes the first.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.options import shown
from tuiapp.trainers.contract.manifest import INDEX_ENDING, check_weight_file, read_index

Tensors: TypeAlias = Mapping[str, npt.NDArray[Any]]

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
"""NumPy knows bfloat16 once a framework that has it, JAX or Keras, is imported."""

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
"""The type of bfloat16 arrays where NumPy does not know it: their bits."""

MAX_HEADER_BYTES = 100_000_000
"""Most bytes of a header, as the format has it."""


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def encode(tensors: Tensors) -> Iterator[bytes | memoryview]:
    """Returns the parts of a file, in their order; raises TypeError for a dtype that is not written here."""
    # Those with the widest numbers first: every array begins at a multiple of its own.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header, end = {}, 0
    for name in names:
        array, begin = tensors[name], end
        end += array.nbytes
        kind = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.name
        if kind not in _NAMES:
            raise TypeError(f"{name} is {kind}; an array can be {', '.join(_NAMES)}")
        header[name] = _Entry(_NAMES[kind], list(array.shape), (begin, end))
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data


def load(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Reads all arrays into memory, of an index those of the files that it names.

    Raises OSError, and ValueError if a file is damaged, or is something else.
    """
    check_weight_file(path)
    if not path.name.endswith(INDEX_ENDING):
        return _load_file(path)
    files, arrays = read_index(path), dict[str, npt.NDArray[Any]]()
    for file in dict.fromkeys(files.values()):
        arrays |= {name: array for name, array in _load_file(path.with_name(file)).items() if files.get(name) == file}
    if lacking := sorted(files.keys() - arrays.keys()):
        raise ValueError(f"{files[lacking[0]]} has no {lacking[0]}")
    return arrays


def _load_file(path: Path) -> dict[str, npt.NDArray[Any]]:
    with path.open("rb") as file:
        arrays = {}
        for name, dtype, shape in _read_header(file):
            try:
                arrays[name] = np.fromfile(file, dtype, prod(shape)).reshape(shape)
            except MemoryError:
                message = f"there is no memory for {name}, which has {prod(shape) * dtype.itemsize:,} bytes"
                raise OSError(errno.ENOMEM, message, str(path)) from None
    return arrays


def _read_header(file: BinaryIO) -> list[tuple[str, np.dtype[Any], list[int]]]:
    """Reads the name, type and shape of each array, in the order in which they follow.

    Raises ValueError unless they fill the rest of the file, each beginning where the one before it ends.
    """
    size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= MAX_HEADER_BYTES:
        raise ValueError(f"its header has {size:,} bytes")
    try:
        parts = msgspec.json.decode(file.read(size), type=dict[str, msgspec.Raw])
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    # What other programs say of the file, in words.
    parts.pop("__metadata__", None)
    header = {name: msgspec.json.decode(part, type=_Entry) for name, part in parts.items()}
    arrays, end, available = [], 0, os.fstat(file.fileno()).st_size - 8 - size
    for name, entry in sorted(header.items(), key=lambda item: item[1].data_offsets):
        if entry.dtype not in _DTYPES:
            raise ValueError(f"{name} has the data type {entry.dtype}, which cannot be read here")
        foreign = entry.dtype == "BF16" and not _knows_bfloat16()
        dtype = BFLOAT16 if foreign else np.dtype(_DTYPES[entry.dtype])
        begin, end = end, end + prod(entry.shape) * dtype.itemsize
        if min(entry.shape, default=0) < 0 or entry.data_offsets != (begin, end):
            said = "{:,} to {:,}".format(*entry.data_offsets)
            at = f"at bytes {said}, where the array before it ends at {begin:,}"
            raise ValueError(f"{name}, {entry.dtype} of shape {shown(entry.shape)}, is said to be {at}")
        if end > available:
            raise ValueError(f"{name} ends at byte {end:,} of {available:,}")
        arrays.append((name, dtype, entry.shape))
    if end < available:
        raise ValueError(f"{available - end:,} bytes at its end are of no array")
    return arrays


def as_float32(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Turns an array of bfloat16, of NumPy's type or `BFLOAT16`, into float32 of the same values; leaves others."""
    if array.dtype.kind != "V":
        return array
    # A bfloat16 is the first half of a float32.
    wide = array.view(np.uint16).astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def _knows_bfloat16() -> bool:
    try:
        np.dtype("bfloat16")
    except TypeError:
        return False
    return True
