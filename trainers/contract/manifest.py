"""Checkpoints and files of weights on disk: which exist, whether they are complete, whether a run can begin from them.

`checkpoints/step-<8 digits>/` holds safetensors files and `manifest.json`, which lists each file with its size and
checksum. It is written under a hidden name and renamed once it is all on disk: a directory of that name is a complete
checkpoint, unless something damaged it later.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import read_limited
from tuiapp.trainers.config.normalization import Normalization
from tuiapp.trainers.config.options import shown
from tuiapp.trainers.config.run_config import KEPT, RunConfig
from tuiapp.trainers.contract.evaluations import NEVER, Evaluated

CHECKPOINT_SCHEMA = 1
MANIFEST = "manifest.json"
MODEL_FILE = "model.safetensors"
"""The model's file in a checkpoint, and in what a run exports."""
NAME = re.compile(r"step-(\d{8,})")
MAX_MANIFEST_BYTES = 1 << 20


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message says why."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = CHECKPOINT_SCHEMA
    run_id: str
    backend: str
    model: str
    dataset: str
    classes: int
    input_shape: tuple[int, ...]
    """The shape of an input: height, width, channels."""
    data_checksum: str = ""
    """Checksum of the user's own data file."""
    init_from: str = ""
    """The file with the weights that the run began with."""
    freeze: str = ""
    normalize: str = ""
    normalization: Normalization | None = None
    """What the inputs were normalized by."""
    optimizer: str
    seed: int
    shuffle: bool = True
    global_batch_size: int
    devices: int
    step: int
    epoch: float
    """Passes over the data; the fraction is the position within one."""
    finite: bool = True
    loss: float | None = None
    """On the test set, if the model was evaluated after this very step."""
    accuracy: float | None = None
    """The test accuracy; None if there is none."""
    own: float | None = None
    """The user's own figure, see `Evaluated`; None if there is none."""
    own_by: str = ""
    best: Evaluated = NEVER
    """The best evaluation so far, by the key `best`."""
    measured: tuple[int, ...] = ()
    """Each rank's examples of a batch, if they follow from the ranks' speed."""
    since_best: int = 0
    """Number of evaluations after that."""
    files: dict[str, StoredFile]


@dataclass(frozen=True, slots=True)
class CheckpointDir:
    path: Path
    manifest: Manifest

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.manifest.files.values())

    @property
    def evaluated(self) -> Evaluated:
        return Evaluated(self.manifest.loss, self.manifest.accuracy, self.manifest.own, self.manifest.own_by)

    def verify(self) -> None:
        """Compares all files with the manifest; raises CheckpointError if one is missing, unreadable, or differs."""
        for name, stored in self.manifest.files.items():
            path = self.path / name
            try:
                size = path.stat().st_size
                if size != stored.bytes:
                    raise CheckpointError(f"{path} is damaged: it has {size:,} bytes of {stored.bytes:,}")
                with path.open("rb") as file:
                    checksum = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
            if checksum != stored.sha256:
                raise CheckpointError(f"{path} is damaged: its checksum does not match")


def checkpoint_name(step: int) -> str:
    """Returns the directory name of the checkpoint after a step."""
    return f"step-{step:08d}"


def read_checkpoint(path: Path) -> CheckpointDir:
    """Reads a checkpoint's manifest alone; raises CheckpointError if missing, damaged, or of a newer version."""
    file = path / MANIFEST
    try:
        manifest = msgspec.json.decode(read_limited(file, MAX_MANIFEST_BYTES), type=Manifest)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if manifest.schema != CHECKPOINT_SCHEMA:
        raise CheckpointError(f"{file} has schema {manifest.schema}; this version of tuiapp reads {CHECKPOINT_SCHEMA}")
    unsafe = [name for name in manifest.files if "/" in name or name.startswith(".")]
    if unsafe or NAME.fullmatch(path.name) is None or int(path.name.removeprefix("step-")) != manifest.step:
        raise CheckpointError(f"{file} does not match its directory")
    return CheckpointDir(path, manifest)


def list_checkpoints(directory: Path) -> tuple[list[CheckpointDir], list[str]]:
    """Returns committed checkpoints, newest first, and what is wrong with others. The directory may be missing."""
    try:
        paths = [path for path in directory.iterdir() if NAME.fullmatch(path.name)]
    except OSError:
        return [], []
    checkpoints: list[CheckpointDir] = []
    problems: list[str] = []
    for path in paths:
        try:
            checkpoints.append(read_checkpoint(path))
        except CheckpointError as error:
            problems.append(str(error))
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.manifest.step, reverse=True), problems


def best_checkpoint(checkpoints: list[CheckpointDir], by: str) -> CheckpointDir | None:
    """Returns the finite checkpoint with the best evaluation `by` the key's value, the first of equals; or None."""
    ranked = [
        (merit, -checkpoint.manifest.step, checkpoint)
        for checkpoint in checkpoints
        if checkpoint.manifest.finite and (merit := checkpoint.evaluated.merit(by)) is not None
    ]
    return max(ranked, key=lambda entry: entry[:2])[2] if ranked else None


def misfit(manifest: Manifest, config: RunConfig, classes: int) -> str:
    """Returns why a run with this configuration cannot resume from a checkpoint, or ""."""
    for key in KEPT:
        was, wanted = getattr(manifest, key), getattr(config, key)
        if was != wanted:
            was, wanted = ("nothing" if value == "" else value for value in (was, wanted))
            return f"was made with {key} = {was}, not {wanted}: start a new run for that"
    if manifest.classes != classes:
        return (
            f"was trained on {manifest.classes} classes, but {config.dataset} has {classes}: start a new run for that"
        )
    return ""


ENDING = ".safetensors"
INDEX_ENDING = f"{ENDING}.index.json"

_HEAD_BYTES = 1024


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def is_weight_file(path: Path) -> bool:
    """Returns whether a path is named as a file of weights or an index of some, and is there."""
    return path.name.endswith((ENDING, INDEX_ENDING)) and os.path.isfile(path)


def read_index(path: Path) -> dict[str, str]:
    """Reads array → name of the file beside the index that has it; raises OSError, and ValueError if it is no index."""
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
    names = {*read_index(path).values()} if path.name.endswith(INDEX_ENDING) else {path.name}
    for name in names:
        _check_not_stand_in(path.with_name(name))


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
