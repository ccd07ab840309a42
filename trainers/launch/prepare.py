"""Makes the plan of a run: where it runs, with what is installed and which data."""

from __future__ import annotations

import os

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import Dataset, check_images, find_dataset, is_examined
from tuiapp.trainers.config.installed import Installed
from tuiapp.trainers.config.interpreters import Interpreter, find_interpreter, find_program
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.memory import check_data_fits, wants_streaming
from tuiapp.trainers.config.mirror import mirror_directory
from tuiapp.trainers.config.options import ConfigError, Problem, hang_limit_s, telemetry_interval_s
from tuiapp.trainers.config.placement import check_facts, place
from tuiapp.trainers.config.plan import Plan, make_plan
from tuiapp.trainers.config.relevance import drop_inapplicable
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script import check_hidden
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.launch.examination import examine
from tuiapp.trainers.state.resume_point import find_weights


class LaunchError(Exception):
    """The run could not be started, and leaves nothing behind; or it could not be resumed, and is unchanged."""


def prepare(config: RunConfig, machine: Machine, *, resumes: bool = False, data: Dataset | None = None) -> Plan:
    """Places a configuration, checks what is installed and the data, and makes the plan.

    A run that `resumes` no longer needs the weights that it began with. `data` has been examined for another run.
    """
    # Refused before anything starts, like any wrong setting.
    telemetry_interval_s()
    hang_limit_s()
    interpreter = find_interpreter(config.backend, config.python)
    backend, installed = BACKENDS[config.backend], installed_for(config, interpreter)
    config = drop_inapplicable(place(config, machine))
    if config.init_from and not resumes:
        config = msgspec.structs.replace(config, init_from=str(find_weights(config.init_from, verify=True)))
    _make_mirror_directory(config)
    if not backend.builtin:
        if is_python(interpreter) and (problems := check_hidden(config, interpreter.python)):
            raise ConfigError(problems)
        return make_plan(config, python=interpreter.python)
    # Where a run's nodes choose their GPUs themselves, all of this machine's stand for theirs.
    gpus = tuple(gpu for gpu in machine.gpus if gpu.uuid in config.device_ids) or machine.gpus
    used = msgspec.structs.replace(machine, gpus=gpus)
    if config.platform == "cuda" and (reason := backend.without_gpus(installed, used)):
        message = f"{config.backend} cannot use this machine's GPUs: {reason}; or use platform cpu."
        raise ConfigError([Problem("platform", message)])
    try:
        check_images(config.dataset)
        if not is_examined(config.dataset):
            data = find_dataset(config.dataset, config.context)
        else:
            data = data or examine(config, interpreter.python)
            if problems := [*check_facts(config, data), *check_data_fits(config, machine, data)]:
                raise ConfigError(problems)
    except DatasetError as error:
        raise ConfigError([Problem("dataset", str(error))]) from None
    except UserCodeError as error:
        raise LaunchError(f"{config.dataset} failed:\n{error}") from None
    streamed = wants_streaming(config, data, machine)
    return make_plan(config, data, streamed=streamed, python=interpreter.python).on_gpus(machine, config.device_ids)


def _make_mirror_directory(config: RunConfig) -> None:
    if (directory := mirror_directory(config.mirror)) is not None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{directory} cannot be made: {error.strerror or error}; name another directory."
            raise ConfigError([Problem("mirror", message)]) from None


def installed_for(config: RunConfig, interpreter: Interpreter) -> Installed:
    """Returns what the ranks' interpreter has; a program that a script names may be none, and is then not asked."""
    is_asked = BACKENDS[config.backend].builtin or is_python(interpreter)
    return interpreter.inspect() if is_asked and find_program(interpreter.python) else Installed(interpreter.python)


def is_python(interpreter: Interpreter) -> bool:
    """Returns whether an interpreter is Python by its name: a script may name another program."""
    return os.path.basename(interpreter.python).startswith(("python", "pypy"))
