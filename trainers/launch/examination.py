"""Finds out the facts about a data set of the user's own, in a process of its own: it may execute the user's code.

That runs in the interpreter that is to train on it; files of images are read in ours, which has what that takes. It is
over once the process has answered: what the user's code leaves behind, a thread or a child, is ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO

import msgspec

from tuiapp.trainers.config import bootstrap
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import Dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import PY, UserCodeError
from tuiapp.trainers.contract.lines import encode_json
from tuiapp.trainers.contract.orphans import TOKEN, kill_tagged

LAST_BYTES = 4000
ANSWER_POLL_S = 0.02
END_S = 1.0
"""Time for the process to end by itself once it has answered."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What the process says; either `data` or one of the others is set."""

    data: Dataset | None = None
    error: str = ""
    traceback: str = ""
    """The traceback of the user's code, its own frames first."""


def examine(config: RunConfig, python: str = sys.executable) -> Dataset:
    """Examines a configuration's data set; raises DatasetError if it is invalid, UserCodeError if its code raises.

    `python` is the ranks' interpreter.
    """
    own_code = config.dataset.startswith(PY)
    command = bootstrap.command(python if own_code else sys.executable, "tuiapp.trainers.sources.examine")
    # A file that defines the model as well may import any framework. JAX would reserve most of a GPU.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", TOKEN: (token := f"examination-{os.urandom(8).hex()}")}
    if keras_backend := BACKENDS[config.backend].keras_backend:
        environment["KERAS_BACKEND"] = keras_backend
    # In memory, not pipes: those have no end while a child holds them.
    with _memory("configuration") as question, _memory("answer") as answer, _memory("said") as said:
        question.write(encode_json(config))
        question.seek(0)
        process = subprocess.Popen(command, env=environment, stdin=question, stdout=answer, stderr=said)
        try:
            _wait(process, answer)
        finally:
            # After Ctrl-C, too.
            process.kill()
            process.wait()
            kill_tagged(token)
        line, last = _content(answer).partition(b"\n")[0], _content(said)[-LAST_BYTES:]
    try:
        examined = msgspec.json.decode(line, type=Examined)
    except (msgspec.DecodeError, UnicodeDecodeError):
        why = f"it ended its process with exit code {process.returncode}"
        raise UserCodeError(f"{last.decode(errors='replace').strip()}\n{why}".strip()) from None
    if examined.traceback:
        raise UserCodeError(examined.traceback)
    if examined.data is None:
        raise DatasetError(examined.error)
    return examined.data


def _memory(name: str) -> IO[bytes]:
    return open(os.memfd_create(name), "w+b", buffering=0)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _wait(process: subprocess.Popen[bytes], answer: IO[bytes]) -> None:
    """Waits for the end of the process, or of its answer: a thread that it has left may never end."""
    while process.poll() is None:
        size = os.fstat(answer.fileno()).st_size
        if size and os.pread(answer.fileno(), 1, size - 1) == b"\n":
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            return
        time.sleep(ANSWER_POLL_S)
