"""The weights that a new run begins with: of another run, or of a file; the key `init_from`."""

from __future__ import annotations

import os
from pathlib import Path

from tuiapp.trainers.config.files import absolute
from tuiapp.trainers.config.options import ConfigError, Problem, shown
from tuiapp.trainers.config.run_config import RunConfig, best_by
from tuiapp.trainers.contract.manifest import (
    MODEL_FILE,
    CheckpointDir,
    CheckpointError,
    best_checkpoint,
    list_checkpoints,
)
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.weight_files import ENDING, INDEX_ENDING, check_weight_file, is_weight_file
from tuiapp.trainers.state.status import read_config

KEY = "init_from"
INDEX_FILE = MODEL_FILE.removesuffix(ENDING) + INDEX_ENDING


def find_weights(value: str, *, verify: bool = False) -> Path:
    """Returns the file that a value of `init_from` means.

    Of a run that is its best checkpoint's, by the run's own `best`, without an evaluation the newest one's, and without
    a checkpoint that of its export. Raises ConfigError if there is none, or with `verify` if the checkpoint is damaged,
    and for a file, or an index of some, that is something else than its name says.
    """
    path = absolute(value)
    for file in (path, path / MODEL_FILE, path / INDEX_FILE):
        if is_weight_file(file):
            return _checked(file)
    run = RunDir(path)
    if not os.path.isfile(run.config):
        message = f"{shown(value)} is no run, no run's directory, and no {ENDING} file or index of some"
        raise _refused(f"{message}: `tuiapp runs` lists the runs.")
    try:
        found = _checkpoint(run)
        if found is not None and verify:
            found.verify()
    except CheckpointError as error:
        raise _refused(f"{error}: name another checkpoint's directory, or another run.") from error
    if found is not None:
        return found.path / MODEL_FILE
    if os.path.isfile(exported := run.export / MODEL_FILE):
        return exported
    raise _refused(f"{run.run_id} has no checkpoint yet, and no {MODEL_FILE} in {run.export}.")


def check_weights(config: RunConfig) -> list[Problem]:
    """Problems of the weights that a new run is to begin with."""
    try:
        if config.init_from:
            find_weights(config.init_from)
    except ConfigError as error:
        return error.problems
    return []


def _checkpoint(run: RunDir) -> CheckpointDir | None:
    """A run's best checkpoint, or else its newest."""
    try:
        by = best_by(read_config(run))
    except (ConfigError, OSError):
        by = best_by(RunConfig())
    finite = [one for one in list_checkpoints(run.checkpoints)[0] if one.manifest.finite]
    return best_checkpoint(finite, by) or next(iter(finite), None)


def _checked(file: Path) -> Path:
    try:
        check_weight_file(file)
    except OSError as error:
        raise _refused(f"{error.filename or file} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise _refused(f"{error}.") from None
    return file


def _refused(message: str) -> ConfigError:
    return ConfigError([Problem(KEY, message)])
