"""Finds out the facts about a data set of the user's own, in a process of its own: it may execute the user's code."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import Dataset
from trainers.config.run_config import RunConfig
from trainers.config.user_code import UserCodeError

LAST_BYTES = 4000


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What the process says; either `data` or one of the others is set."""

    data: Dataset | None = None
    error: str = ""
    traceback: str = ""
    """Of the user's code, its own frames first."""


def examine(config: RunConfig) -> Dataset:
    """Examines a configuration's data set; raises DatasetError if it is invalid, UserCodeError if its code raises."""
    command = [sys.executable, "-P", "-m", "trainers.data.examine"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            answer, said = process.communicate(msgspec.json.encode(config))
        except BaseException:
            # Ctrl-C, too.
            process.kill()
            raise
    try:
        found = msgspec.json.decode(answer, type=Examined)
    except (msgspec.DecodeError, UnicodeDecodeError):
        last = said[-LAST_BYTES:].decode(errors="replace").strip()
        why = f"it ended its process with exit code {process.returncode}"
        raise UserCodeError(f"{last}\n{why}".strip()) from None
    if found.traceback:
        raise UserCodeError(found.traceback)
    if found.data is None:
        raise DatasetError(found.error)
    return found.data
