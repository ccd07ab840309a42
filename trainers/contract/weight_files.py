"""What a file of weights is, as far as that can be said before its arrays are read: one file, or an index of several.

An index, as Hugging Face writes it, is JSON that names for each array the file beside it that has it. What a download
leaves in a file's place, such as a pointer or an error's page, is named.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tuiapp.trainers.config.options import shown

ENDING = ".safetensors"
INDEX_ENDING = f"{ENDING}.index.json"

_HEAD_BYTES = 1024


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def is_weight_file(path: Path) -> bool:
    """Whether it is named as one, and is there."""
    return path.name.endswith((ENDING, INDEX_ENDING)) and os.path.isfile(path)


def read_index(path: Path) -> dict[str, str]:
    """Array → name of the file beside the index that has it; raises OSError, and ValueError if it is no index."""
    _check_not_stand_in(path)
    try:
        files = msgspec.json.decode(path.read_bytes(), type=_Index).weight_map
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} is no index of weights: {error}") from None
    for name in files.values():
        if Path(name).name != name:
            raise ValueError(f"{path.name} names {shown(name)}, which is no file beside it")
    return files


def check_weight_file(path: Path) -> None:
    """Raises OSError if a file, or one that an index names, cannot be read, and ValueError if it is something else."""
    if path.name.endswith(INDEX_ENDING):
        for name in set(read_index(path).values()):
            _check_not_stand_in(path.with_name(name))
    else:
        _check_not_stand_in(path)


def _check_not_stand_in(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(b"version https://git-lfs"):
        raise ValueError(f"{path.name} is a Git LFS pointer, not the file itself: `git lfs pull` fetches that")
    # A file of weights begins with a length, whose high bytes are zero.
    if text.startswith(b"<") and b"\0" not in head:
        kind = "an HTML" if b"<html" in text or text.startswith(b"<!doctype html") else "an XML"
        raise ValueError(f"{path.name} is {kind} page, such as a download's error page: download the file again")
