"""The devices of a configuration on a machine: resolves `auto`, or refuses."""

from __future__ import annotations

from math import prod

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS, MODELS
from tuiapp.trainers.config.data_files import DatasetError, NotExaminedError
from tuiapp.trainers.config.datasets import DATASETS, Dataset, find_dataset, source_of
from tuiapp.trainers.config.division import devices_of_nodes
from tuiapp.trainers.config.files import absolute, printable
from tuiapp.trainers.config.gpu_choice import find, most, pick
from tuiapp.trainers.config.interpreters import find_interpreter, why_not
from tuiapp.trainers.config.machine import Gpu, Machine, NotHereError, own_address
from tuiapp.trainers.config.memory import check_data_fits, check_gpus_have_room
from tuiapp.trainers.config.mesh import devices_per_node, mesh_of, weights
from tuiapp.trainers.config.mirror import mirror_fault, place_mirror
from tuiapp.trainers.config.normalization import parse_normalization
from tuiapp.trainers.config.options import ConfigError, Problem, suggest
from tuiapp.trainers.config.run_config import (
    GPUS_ON_CPU,
    OPTIONS,
    RunConfig,
    beside_own_loss,
    check_batch,
    cross_check,
    with_global_batch,
)
from tuiapp.trainers.config.script import check_script, place_script
from tuiapp.trainers.config.user_code import PY, UserCodeError, has_function
from tuiapp.trainers.config.user_code import check as check_code
from tuiapp.trainers.config.user_code import parse as parse_code
from tuiapp.trainers.tasks.catalog import IMAGES


def place(config: RunConfig, machine: Machine) -> RunConfig:
    """Resolves platform, devices, device_ids and the data set's path, so that the result fixes all the run will do.

    `devices = 0` becomes every idle GPU (the largest count that divides the global batch), or 2 CPU ranks, of a
    script 1 on each node; GPUs are written as UUIDs, because indices change with the environment. Raises ConfigError if
    the machine lacks what is requested, or the interpreter of the ranks, as far as that is known.
    """
    interpreter = find_interpreter(config.backend, config.python)
    if reason := why_not(config.backend, interpreter):
        message = reason if interpreter.origin == "python" else f"{config.backend} cannot run here: {reason}"
        raise ConfigError([Problem(interpreter.key, message)])
    if interpreter.origin == "python":
        config = msgspec.structs.replace(config, python=interpreter.python)
    problems = check_data(config)
    if fault := mirror_fault(config.mirror):
        problems.append(Problem("mirror", fault))
    if config.launcher in ("join", "ssh"):
        try:
            own_address(config.network)
        except NotHereError as error:
            problems.append(Problem("network", str(error)))
    wants_gpus = config.platform == "cuda" or (config.platform == "auto" and bool(machine.gpus))
    try:
        config = _with_devices_said(config)
        placed = _on_gpus(config, machine) if wants_gpus else _on_cpu(config, machine)
        problems += cross_check(placed)
        placed = with_global_batch(placed)
        problems += check_data_fits(placed, machine) + check_gpus_have_room(placed, machine)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    placed = place_script(_with_absolute_paths(msgspec.structs.replace(placed, mirror=place_mirror(placed.mirror))))
    texts = {key: value for key in OPTIONS if isinstance(value := getattr(placed, key), str)}
    # No file of a run can hold a path that is no UTF-8.
    if problems := [
        Problem(key, f"{printable(text)} is no UTF-8 text: rename it, or name another path.")
        for key, text in texts.items()
        if printable(text) != text
    ]:
        raise ConfigError(problems)
    return placed


def _with_devices_said(config: RunConfig) -> RunConfig:
    """Returns the configuration with the nodes and devices that other keys say; raises ConfigError if unreadable."""
    try:
        if config.mesh and not (config.devices or config.device_ids):
            config = msgspec.structs.replace(config, devices=prod(mesh_of(config.mesh, 0)))
        if uneven := devices_per_node(config.devices_per_node):
            return msgspec.structs.replace(config, nodes=len(uneven), devices=sum(uneven))
        if (shares := weights(config.shares)) and not config.devices and len(shares) != config.nodes:
            return msgspec.structs.replace(config, devices=len(shares))
    except ValueError:
        raise ConfigError(cross_check(config)) from None
    return config


def check_data(config: RunConfig) -> list[Problem]:
    """Returns problems of data, model and training, or of a script: reads the user's files."""
    if not BACKENDS[config.backend].builtin:
        return check_script(config)
    problems = _check_model(config)
    try:
        return problems + check_facts(config, find_dataset(config.dataset, config.context))
    except NotExaminedError:
        return problems
    except DatasetError as error:
        return [*problems, Problem("dataset", str(error))]


def check_facts(config: RunConfig, data: Dataset) -> list[Problem]:
    """Returns problems of training the model on data of known facts."""
    problems = [] if config.dataset in DATASETS else check_batch(config, data)
    if data.task != IMAGES.name:
        return problems
    height, width, channels = data.input_shape
    if config.augment in ("flip", "crop-flip") and min(height, width) == 1:
        message = (
            f"{config.dataset} has rows of {height * width} features, which have no left and right: use mixup or off."
        )
        problems.append(Problem("augment", message, also=("dataset",)))
    try:
        normalization = parse_normalization(config.normalize)
    except ValueError:
        # cross_check says so.
        normalization = None
    if normalization and not normalization.over(channels).fits(channels):
        message = f"{config.normalize!r} has not a number for each of the {channels} channels of {config.dataset}."
        problems.append(Problem("normalize", message, also=("dataset",)))
    if config.model not in MODELS or MODELS[config.model].task != IMAGES.name:
        return problems
    least = MODELS[config.model].min_side
    if min(height, width) < least:
        message = (
            f"{config.model} needs images of at least {least}×{least} pixels; those of {config.dataset} have "
            f"{height}×{width}."
        )
        if channels > min(height, width):
            message += f" They have {channels} channels: channels come last, [N, H, W, C]."
        problems.append(Problem("model", message, also=("dataset",)))
    return problems


def _check_model(config: RunConfig) -> list[Problem]:
    """Returns problems of a model and a loss of the user's own that can be seen in its file; ranks find the others."""
    if not config.model.startswith(PY):
        return []
    try:
        check_code(config.model)
    except UserCodeError as error:
        return [Problem("model", str(error))]
    useless = beside_own_loss(config, f"the file of {config.model}")
    if useless and has_function(config.model, "loss"):
        return [Problem(key, message, also=("model",)) for key, message in useless.items()]
    return []


def _with_absolute_paths(config: RunConfig) -> RunConfig:
    model, dataset = (
        str(parse_code(value)) if value.startswith(PY) else value for value in (config.model, config.dataset)
    )
    if (source := source_of(dataset)) is not None and source.prefix != PY:
        dataset = f"{source.prefix}{absolute(dataset.removeprefix(source.prefix))}"
    init_from = str(absolute(config.init_from)) if config.init_from else ""
    return msgspec.structs.replace(config, model=model, dataset=dataset, init_from=init_from)


def placement_problems(config: RunConfig, machine: Machine) -> list[Problem]:
    """Returns what this machine lacks for a configuration, regardless of how its values fit together."""
    try:
        place(config, machine)
    except ConfigError as error:
        together = {problem.message for problem in cross_check(config)}
        return [problem for problem in error.problems if problem.message not in together]
    return []


def _on_cpu(config: RunConfig, machine: Machine) -> RunConfig:
    if config.device_ids:
        none = f"names GPUs, but there are none: {machine.gpu_problem}. Leave it empty to train on CPUs."
        raise ConfigError([Problem("device_ids", GPUS_ON_CPU if config.platform == "cpu" else none)])
    if config.launcher != "slurm" and max(devices_of_nodes(config)) > machine.max_cpu_ranks:
        message = (
            f"{config.devices} is more than this machine has: {machine.cpu_cores} CPU cores take at most "
            f"{machine.max_cpu_ranks} CPU ranks."
        )
        raise ConfigError([Problem("devices", message)])
    most = 2 if config.nodes > 1 else BACKENDS[config.backend].max_cpu_devices or 2
    count = config.devices or _count(config, most, config.nodes)
    if not BACKENDS[config.backend].builtin and not config.devices:
        # A second copy of a script that knows no ranks would do all its work twice.
        count = config.nodes
    return msgspec.structs.replace(config, platform="cpu", devices=count)


def _on_gpus(config: RunConfig, machine: Machine) -> RunConfig:
    if not machine.gpus and config.launcher == "slurm":
        # The machine that submits a job need not have what its nodes have.
        if config.devices:
            return msgspec.structs.replace(config, platform="cuda")
        message = "0 is as many as this machine has GPUs: none; say how many all nodes use."
        raise ConfigError([Problem("devices", message)])
    if not machine.gpus:
        raise ConfigError([Problem("platform", f"cuda cannot be used here: {machine.gpu_problem}.")])
    if config.launcher != "local":
        # Each node picks its own.
        count = config.devices or _count(config, most(machine.gpus), config.nodes)
        return msgspec.structs.replace(config, platform="cuda", devices=count)
    if config.device_ids:
        chosen = [_find_gpu(name, machine) for name in config.device_ids]
        if len(chosen) > 1 and any(gpu.part is not None for gpu in chosen):
            message = f"{', '.join(config.device_ids)} names a MIG instance beside others; a run can use one alone."
            raise ConfigError([Problem("device_ids", message)])
    else:
        count = config.devices or _count(config, most(machine.gpus))
        chosen = pick(machine.gpus, count)
        if len(chosen) < count:
            raise ConfigError([Problem("devices", f"{count} is more than this machine has: {_all(machine)}.")])
    return msgspec.structs.replace(
        config, platform="cuda", devices=len(chosen), device_ids=tuple(gpu.uuid for gpu in chosen)
    )


def _find_gpu(name: str, machine: Machine) -> Gpu:
    if gpu := find(name, machine.gpus):
        return gpu
    available = ", ".join(f"{gpu.number} ({gpu.uuid})" for gpu in machine.gpus)
    limit = f"; {machine.gpu_limit}" if machine.gpu_limit else ""
    hint = suggest(name, [gpu.uuid for gpu in machine.gpus])
    raise ConfigError([Problem("device_ids", f"there is no GPU {name!r} here; available: {available}{limit}.{hint}")])


def _all(machine: Machine) -> str:
    gpus = sum(gpu.part is None for gpu in machine.gpus)
    text = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    if parts := len(machine.gpus) - gpus:
        text += f", and {parts} MIG instance{'s' if parts > 1 else ''}, of which a run can use one alone"
    return f"{text}; {machine.gpu_limit}" if machine.gpu_limit else text


def _count(config: RunConfig, most: int, nodes: int = 1) -> int:
    """Returns the largest number of devices that divides a built-in trainer's global batch, where that is given.

    Every node has the same number of them, at most `most`.
    """
    counts = range(most * nodes, 0, -nodes)
    if not BACKENDS[config.backend].builtin or config.per_device_batch_size:
        return counts[0]
    return next((count for count in counts if config.global_batch_size % count == 0), nodes)
