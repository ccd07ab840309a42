"""Finds out the facts about a data set of the user's own, in a process of its own: it may execute the user's code.

That runs in the interpreter that is to train on it; files of images are read in ours, which has what that takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import msgspec

from trainers import bootstrap
from trainers.config.catalog import BACKENDS
from trainers.config.dataset_error import DatasetError
from trainers.config.datasets import Dataset
from trainers.config.run_config import RunConfig
from trainers.config.user_code import PY, UserCodeError

LAST_BYTES = 4000


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What the process says; either `data` or one of the others is set."""

    data: Dataset | None = None
    error: str = ""
    traceback: str = ""
    """Of the user's code, its own frames first."""


def examine(config: RunConfig, python: str = sys.executable) -> Dataset:
    """Examines a configuration's data set; raises DatasetError if it is invalid, UserCodeError if its code raises.

    `python` is the ranks' interpreter.
    """
    own_code = config.dataset.startswith(PY)
    command = bootstrap.command(python if own_code else sys.executable, "trainers.data.examine")
    # A file that defines the model as well may import any framework. JAX would reserve most of a GPU.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if keras_backend := BACKENDS[config.backend].keras_backend:
        environment["KERAS_BACKEND"] = keras_backend
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
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
