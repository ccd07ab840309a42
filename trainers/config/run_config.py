"""The configuration of a run: flat keys, the same in presets, `run.toml`, `--set KEY=VALUE` and the form."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import sqrt
from typing import Annotated, Any, TypeAlias

import msgspec

from tuiapp.trainers.config.catalog import BACKENDS, HALF, MODELS, OPTIMIZER_SLOTS, backends_with, takes
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import CONTEXT, DATASETS, SOURCES, Dataset, find_dataset, task_of
from tuiapp.trainers.config.mesh import (
    EQUAL,
    MEASURED,
    Mesh,
    devices_per_node,
    divide_batch,
    mesh_of,
    parse_mesh,
    weights,
)
from tuiapp.trainers.config.mirror import OFF, TENSORBOARD
from tuiapp.trainers.config.normalization import parse_normalization
from tuiapp.trainers.config.options import ConfigError, Option, Problem, Value, declared, shown, suggest
from tuiapp.trainers.config.script_syntax import check_name, compile_pattern, read_environment, read_texts, split_words
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.tasks.catalog import IMAGES, TEXT

ANY = range(1)
"""Port 0, for which the system chooses a free one."""


def read_ports(text: str) -> range:
    """Reads "29500" or "29500-29510", both ends included, and "" as `ANY`; raises ValueError."""
    if not text.strip():
        return ANY
    match = re.fullmatch(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= 65_535:
        raise ValueError(f"{text[:60]!r} is no port or range of ports: use one of 1 to 65535, or LOW-HIGH.")
    return range(low, high + 1)


SCHEMA = 1
"""Version of the keys below; `schema` at the top of every file."""

MAX_FILE_BYTES = 64 * 1024
"""No configuration is longer; a longer file is refused unread."""

KEPT_LINES = 1024
"""Most lines that are cached of configuration files: see `_read_lines`."""

LAUNCHERS = ("join", "ssh", "slurm")
"""What starts the processes of a run on several machines."""

BEST_OWN = HIGHEST, LOWEST = "highest:", "lowest:"
"""What the key `best` begins with where it names a metric of the user's own."""

_ON_NODES = "launcher", LAUNCHERS


_TEXTS = (
    *(name for name, data in DATASETS.items() if data.task == TEXT.name),
    *(prefix for prefix, source in SOURCES.items() if source.task == TEXT.name),
)


def _with_key(key: str) -> tuple[str, tuple[str, ...]]:
    return "backend", backends_with(key)


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What to train, on what, and how. Each field is one configuration key."""

    backend: Annotated[
        str,
        Option(
            "Trainer",
            "Backend",
            "how devices work together",
            choices=tuple(BACKENDS),
            similar=("strategy", "framework", "trainer", "ddp"),
        ),
    ] = "torch-ddp"
    model: Annotated[
        str,
        Option(
            "Trainer",
            "Model",
            "what is trained",
            choices=tuple(MODELS),
            prefixes=(PY,),
            similar=("arch", "model_name", "model_name_or_path"),
        ),
    ] = "net"
    dataset: Annotated[
        str,
        Option(
            "Trainer",
            "Data",
            "what it is trained on",
            choices=tuple(DATASETS),
            prefixes=tuple(SOURCES),
            similar=("data", "data_dir", "dataset_name"),
        ),
    ] = "digits"
    script: Annotated[
        str, Option("Trainer", "Script", "its path, or module:NAME", text="script", only=_with_key("script"))
    ] = ""
    arguments: Annotated[
        str, Option("Trainer", "Arguments", "as typed after its name", text="line", only=_with_key("arguments"))
    ] = ""
    values: Annotated[
        str, Option("Trainer", "Values", "for {lr} in Arguments: lr=0.1", text="line", only=_with_key("values"))
    ] = ""
    processes: Annotated[
        str,
        Option(
            "Trainer",
            "Processes",
            "one per device, as torchrun starts them, or one",
            choices=("per-device", "one"),
            only=_with_key("processes"),
        ),
    ] = "per-device"
    working_directory: Annotated[
        str,
        Option(
            "Trainer",
            "Working dir",
            "empty: where it is launched",
            text="directory",
            only=_with_key("working_directory"),
        ),
    ] = ""
    environment: Annotated[
        str, Option("Trainer", "Environment", "variables: A=1 B='x y'", text="line", only=_with_key("environment"))
    ] = ""
    output_pattern: Annotated[
        str,
        Option(
            "Trainer",
            "Output pattern",
            r"metrics: loss (?P<loss>\S+)",
            text="line",
            only=_with_key("output_pattern"),
        ),
    ] = ""
    tensorboard_dir: Annotated[
        str,
        Option(
            "Trainer",
            "TensorBoard",
            "folder of its event files",
            text="directory",
            only=_with_key("tensorboard_dir"),
        ),
    ] = ""

    image_size: Annotated[
        int,
        Option(
            "Trainer",
            "Image size",
            "pixels a side",
            minimum=8,
            maximum=1024,
            only=("dataset", tuple(prefix for prefix, source in SOURCES.items() if source.is_decoded)),
        ),
    ] = 64
    context: Annotated[
        int,
        Option(
            "Trainer",
            "Context",
            "bytes that a model sees at a time",
            minimum=8,
            maximum=1 << 16,
            only=("dataset", _TEXTS),
            similar=("block_size", "seq_len", "sequence_length", "max_length", "max_seq_length", "n_ctx"),
        ),
    ] = CONTEXT

    init_from: Annotated[
        str,
        Option(
            "Trainer",
            "Weights from",
            "a run, or a .safetensors file or index; empty: none",
            text="weights",
            similar=("pretrained", "checkpoint", "ckpt_path", "load_from", "weights", "finetune", "fine_tune"),
            is_rare=True,
        ),
    ] = ""
    freeze: Annotated[
        str,
        Option(
            "Trainer",
            "Freeze",
            "parameters not to train: conv*,bn*",
            similar=("frozen", "freeze_layers", "freeze_backbone", "trainable"),
            is_rare=True,
        ),
    ] = ""
    normalize: Annotated[
        str,
        Option(
            "Trainer",
            "Normalize",
            "data, or means / deviations, as 0.29 / 0.35",
            text="line",
            similar=("normalization", "mean", "std", "image_mean", "image_std"),
            is_rare=True,
        ),
    ] = ""
    augment: Annotated[
        str,
        Option(
            "Trainer",
            "Augment",
            "random changes of training images",
            choices=("off", "flip", "crop-flip", "mixup"),
            similar=("augmentation", "data_augmentation", "transforms", "random_crop", "mixup"),
            is_rare=True,
        ),
    ] = "off"
    mixup_alpha: Annotated[
        float,
        Option(
            "Trainer",
            "Mixup alpha",
            "images are mixed by Beta(alpha, alpha)",
            above=0,
            maximum=100,
            only=("augment", ("mixup",)),
            similar=("alpha",),
            is_rare=True,
        ),
    ] = 0.2

    platform: Annotated[
        str, Option("Devices", "Platform", "auto: GPUs if there are any", choices=("auto", "cuda", "cpu"))
    ] = "auto"
    devices: Annotated[
        int,
        Option(
            "Devices",
            "Devices",
            "0: idle GPUs, or 2 CPUs (a script: 1)",
            minimum=0,
            maximum=1024,
            similar=("gpu", "gpus", "num_gpus", "ngpus", "n_gpus", "nproc_per_node", "num_processes", "world_size"),
        ),
    ] = 0
    device_ids: Annotated[
        tuple[str, ...], Option("Devices", "GPUs", "indices or UUIDs, comma-separated; empty: idle ones")
    ] = ()
    launcher: Annotated[
        str,
        Option("Devices", "Launcher", "local: this machine; others: several", choices=("local", *LAUNCHERS)),
    ] = "local"
    nodes: Annotated[
        int,
        Option(
            "Devices",
            "Nodes",
            "machines; they share the devices",
            minimum=1,
            maximum=1024,
            only=_ON_NODES,
            aliases=("num_nodes", "nnodes"),
        ),
    ] = 1
    devices_per_node: Annotated[
        str,
        Option("Devices", "Node devices", "on each node, where they differ: 4+2", only=_ON_NODES, is_rare=True),
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        Option("Devices", "Hosts", "the other nodes, as ssh knows them", only=("launcher", ("ssh",))),
    ] = ()
    slurm: Annotated[
        str,
        Option("Devices", "Slurm options", "for sbatch: -p gpu -t 4:00", text="line", only=("launcher", ("slurm",))),
    ] = ""
    requeue: Annotated[
        bool,
        Option("Devices", "Requeue", "go on after preemption or time limit", only=("launcher", ("slurm",))),
    ] = False
    network: Annotated[
        str,
        Option("Devices", "Network", "interface or address; empty: the first", only=_ON_NODES, is_rare=True),
    ] = ""
    master_port: Annotated[
        str,
        Option(
            "Devices",
            "Ports",
            "that a firewall lets through: 29500-29510; empty: any",
            only=_ON_NODES,
            similar=("port", "main_process_port", "rdzv_port", "ports"),
            is_rare=True,
        ),
    ] = ""
    node_grace_s: Annotated[
        float,
        Option(
            "Devices",
            "Node grace",
            "seconds to wait for a lost node",
            minimum=1,
            maximum=86_400,
            only=_ON_NODES,
            is_rare=True,
        ),
    ] = 60.0
    mesh: Annotated[
        str,
        Option(
            "Devices",
            "Mesh",
            "batch=2,model=2 splits weights, too; empty: the batch alone",
            text="line",
            only=_with_key("mesh"),
            similar=("mesh_shape", "tensor_parallel_size", "tp", "tp_size", "model_parallel_size"),
            is_rare=True,
        ),
    ] = ""
    global_batch_size: Annotated[
        int,
        Option(
            "Devices",
            "Global batch",
            "examples a step, all devices",
            minimum=1,
            maximum=1 << 20,
            only=("per_device_batch_size", ("0",)),
            why="one follows from the other and the devices",
            aliases=("bs", "batch_size", "batch"),
            similar=("train_batch_size", "total_batch_size"),
        ),
    ] = 48
    per_device_batch_size: Annotated[
        int,
        Option(
            "Devices",
            "Device batch",
            "instead: examples a step of each device",
            minimum=0,
            maximum=1 << 20,
            similar=("per_device_train_batch_size", "micro_batch_size", "batch_size_per_gpu", "local_batch_size"),
            is_rare=True,
        ),
    ] = 0

    shares: Annotated[
        str,
        Option(
            "Devices",
            "Batch shares",
            "of the devices: equal, measured, or 3:1",
            only=("backend", backends_with("shares")),
            why="the others split one array into equal parts",
            is_rare=True,
        ),
    ] = EQUAL

    accumulate: Annotated[
        int,
        Option(
            "Devices",
            "Accumulate",
            "parts into which a device's batch is cut",
            minimum=1,
            maximum=1 << 20,
            only=("backend", backends_with("accumulate")),
            similar=("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "grad_accum"),
            is_rare=True,
        ),
    ] = 1

    optimizer: Annotated[
        str,
        Option("Optimization", "Optimizer", "", choices=tuple(OPTIMIZER_SLOTS), aliases=("optim", "opt")),
    ] = "adam"
    learning_rate: Annotated[
        float,
        Option("Optimization", "Learning rate", "", above=0, maximum=100, aliases=("lr",)),
    ] = 0.001
    learning_rate_for: Annotated[
        int,
        Option(
            "Optimization",
            "Rate for batch",
            "global batch that the rate is meant for; 0: any",
            minimum=0,
            maximum=1_048_576,
            similar=("base_batch_size", "lr_base_batch_size", "scale_lr"),
            is_rare=True,
        ),
    ] = 0
    learning_rate_scaling: Annotated[
        str,
        Option(
            "Optimization",
            "Rate scaling",
            "how the rate follows the batch",
            choices=("linear", "sqrt"),
            is_rare=True,
        ),
    ] = "linear"
    momentum: Annotated[
        float, Option("Optimization", "Momentum", "sgd only", minimum=0, below=1, only=("optimizer", ("sgd",)))
    ] = 0.9
    nesterov: Annotated[
        bool,
        Option("Optimization", "Nesterov", "Nesterov momentum; sgd only", only=("optimizer", ("sgd",)), is_rare=True),
    ] = False
    weight_decay: Annotated[
        float,
        Option(
            "Optimization", "Weight decay", "L2 penalty; decoupled in adamw", minimum=0, maximum=10, aliases=("wd",)
        ),
    ] = 0.0
    gradient_clip: Annotated[
        float,
        Option(
            "Optimization",
            "Gradient clip",
            "largest norm; 0: no clipping",
            minimum=0,
            maximum=1e6,
            aliases=("clip", "max_grad_norm", "grad_clip", "gradient_clip_val"),
            is_rare=True,
        ),
    ] = 0.0
    label_smoothing: Annotated[
        float,
        Option(
            "Optimization",
            "Smooth labels",
            "share of a label that all classes get",
            minimum=0,
            below=1,
            aliases=("label_smoothing_factor",),
            is_rare=True,
        ),
    ] = 0.0
    schedule: Annotated[
        str,
        Option(
            "Optimization",
            "Schedule",
            "how the rate changes over the run",
            choices=("constant", "cosine", "linear", "one-cycle", "step"),
            similar=("scheduler", "lr_scheduler", "lr_scheduler_type", "lr_schedule"),
        ),
    ] = "constant"
    warmup_steps: Annotated[
        int,
        Option(
            "Optimization",
            "Warm-up steps",
            "rate rises linearly",
            minimum=0,
            maximum=10_000_000,
            aliases=("num_warmup_steps",),
            similar=("warmup", "warmup_ratio", "warmup_epochs"),
        ),
    ] = 0
    ema: Annotated[
        float,
        Option(
            "Optimization",
            "Weight average",
            "decay of averaged weights, as 0.999; 0: none",
            minimum=0,
            below=1,
            only=("backend", backends_with("ema")),
            aliases=("ema_decay", "ema_momentum"),
            similar=("use_ema", "model_ema", "swa", "polyak"),
            is_rare=True,
        ),
    ] = 0.0
    """The decay of an exponential moving average of the weights, which is evaluated, saved as the model and exported.

    After step n it is min(ema, (1 + n) / (10 + n)), as TensorFlow's ExponentialMovingAverage has it with `num_updates`:
    a short run's average does not remember its first weights.
    """
    precision: Annotated[
        str,
        Option(
            "Optimization",
            "Precision",
            "tf32: GPUs only",
            choices=("float32", "tf32", "bfloat16", "float16"),
            similar=("dtype", "amp", "bf16", "fp16", "mixed_precision"),
        ),
    ] = "float32"
    sync_batch_norm: Annotated[
        bool,
        Option(
            "Optimization",
            "Sync BatchNorm",
            "statistics of the global batch",
            only=("backend", backends_with("sync_batch_norm")),
            aliases=("sync_batchnorm", "sync_bn"),
            is_rare=True,
        ),
    ] = False
    compile: Annotated[
        bool,
        Option(
            "Optimization",
            "torch.compile",
            "a minute to compile",
            only=("backend", backends_with("compile")),
            aliases=("torch_compile",),
            is_rare=True,
        ),
    ] = False
    cuda_graphs: Annotated[
        bool,
        Option(
            "Optimization",
            "CUDA graphs",
            "a step's passes by one launch; one GPU",
            only=("backend", backends_with("cuda_graphs")),
            similar=("use_cuda_graphs", "cudagraphs", "reduce_overhead"),
            is_rare=True,
        ),
    ] = False

    epochs: Annotated[
        int,
        Option(
            "Run",
            "Epochs",
            "passes over the data",
            minimum=1,
            maximum=1_000_000,
            aliases=("max_epochs", "num_epochs", "num_train_epochs", "n_epochs"),
        ),
    ] = 10
    max_steps: Annotated[
        int,
        Option(
            "Run",
            "Max steps",
            "0: no limit",
            minimum=0,
            maximum=1 << 40,
            similar=("steps", "num_steps", "total_steps", "max_iters"),
        ),
    ] = 0
    seed: Annotated[
        int,
        Option(
            "Run",
            "Seed",
            "weights and data order",
            minimum=0,
            maximum=2**32 - 1,
            aliases=("random_seed", "manual_seed"),
        ),
    ] = 0
    shuffle: Annotated[
        bool,
        Option("Run", "Shuffle", "false: the data's own order, each epoch", is_rare=True),
    ] = True
    eval_every: Annotated[
        int,
        Option(
            "Run",
            "Evaluate every",
            "epochs; 0: only at the end",
            minimum=0,
            maximum=1_000_000,
            aliases=("check_val_every_n_epoch",),
            similar=("eval_steps", "eval_interval", "val_check_interval"),
        ),
    ] = 1
    early_stop: Annotated[
        int,
        Option(
            "Run",
            "Early stop",
            "evaluations in a row that are not the best; 0: never",
            minimum=0,
            maximum=1_000_000,
            aliases=("patience", "early_stopping_patience"),
            similar=("early_stopping",),
            is_rare=True,
        ),
    ] = 0
    checkpoint_every: Annotated[
        int,
        Option(
            "Run",
            "Save every",
            "epochs; -1: 30 s apart; 0: asked",
            minimum=-1,
            maximum=1_000_000,
            similar=("save_steps", "save_every", "every_n_epochs"),
        ),
    ] = -1
    keep_checkpoints: Annotated[
        int,
        Option(
            "Run",
            "Keep saves",
            "newest checkpoints, and the best",
            minimum=1,
            maximum=1_000_000,
            similar=("save_total_limit", "save_top_k"),
            is_rare=True,
        ),
    ] = 3
    best: Annotated[
        str,
        Option(
            "Run",
            "Best by",
            "what is best on the test set",
            choices=("accuracy", "loss"),
            prefixes=BEST_OWN,
            is_rare=True,
        ),
    ] = "accuracy"
    mirror: Annotated[
        str,
        Option("Run", "Mirror", "metrics as event files, too", choices=(OFF,), prefixes=(TENSORBOARD,), is_rare=True),
    ] = OFF
    python: Annotated[str, Option("Run", "Interpreter", "its path; empty: automatic", text="program")] = ""
    nan_policy: Annotated[
        str,
        Option(
            "Run",
            "On NaN loss",
            "what a non-finite loss does",
            choices=("warn", "stop", "checkpoint-and-stop"),
            is_rare=True,
        ),
    ] = "warn"
    check_replicas: Annotated[
        bool,
        Option(
            "Run",
            "Check replicas",
            "compare weights after epochs",
            only=("backend", backends_with("check_replicas")),
            is_rare=True,
        ),
    ] = True
    stop_grace_s: Annotated[
        float,
        Option(
            "Run",
            "Stop grace",
            "seconds from SIGTERM to SIGKILL",
            minimum=0,
            maximum=86_400,
            only=_with_key("stop_grace_s"),
            is_rare=True,
        ),
    ] = 30.0


OPTIONS = declared(RunConfig)

KEPT = ("backend", "model", "optimizer", "seed", "shuffle", "global_batch_size", "normalize", "init_from", "freeze")
"""Keys that a resumed run keeps: its checkpoints fit no others. All other keys may change with a resume."""


GPUS_ON_CPU = "names GPUs, but platform is cpu: leave it empty, or choose platform cuda."

_MEANT = {name: option for option in OPTIONS.values() for name in option.aliases}
_NEAR = {name: option for option in OPTIONS.values() for name in option.similar}


def find_option(key: str) -> tuple[Option | None, bool]:
    """Returns the option of that name, or one that is near; and whether it is the same, by its name or alias."""
    if option := OPTIONS.get(key) or _MEANT.get(key):
        return option, True
    return _NEAR.get(key), False


def get_option(key: str) -> Option:
    """Returns the option of that name or alias; raises ConfigError, with what is meant or near, if there is none."""
    option, is_same = find_option(key)
    if option and is_same:
        return option
    if option:
        hint = f" Use {option.key!r}{f': {option.help}' if option.help else ''}."
    else:
        hint = suggest(key, (*OPTIONS, *_MEANT)) or f" The keys are: {', '.join(OPTIONS)}."
    # Anything but a name is quoted: it may be long, or empty, or hold control characters.
    name = key if re.fullmatch(r"[\w.-]{1,60}", key) else shown(key)
    raise ConfigError([Problem(name, f"unknown key.{hint}")])


Check: TypeAlias = Callable[["RunConfig"], Iterable[Problem]]


def build_config(values: Mapping[str, object], source: str = "", checks: Sequence[Check] = ()) -> RunConfig:
    """Checks values, fills in the defaults, and checks how they fit together; raises ConfigError with every problem.

    `source` prefixes each problem, for example a file's path. `checks` come before `cross_check`, which skips keys that
    they report.
    """
    problems: list[Problem] = []
    checked: dict[str, Any] = {}
    for key, value in values.items():
        try:
            option = get_option(key)
            if option.key in checked or (option.key != key and option.key in values):
                message = f"is another name of {option.key}: give one of them."
                raise ConfigError([Problem(key, message)])
            checked[option.key] = option.check(value)
        except ConfigError as error:
            problems += error.problems
    config = RunConfig(**checked)
    for check in (*checks, cross_check):
        # Values found wrong are at their defaults here, or make what depends on them wrong too.
        broken = {problem.key for problem in problems}
        problems += [problem for problem in check(config) if not broken & problem.keys]
    if problems:
        raise ConfigError(problems, source)
    return config


def with_global_batch(config: RunConfig) -> RunConfig:
    """The configuration with the global batch that `per_device_batch_size` makes, as far as the devices are known.

    Of a placed one it is final: what it says is written as `global_batch_size`, so that a resume on other devices, and
    whoever reads the run, find one number.
    """
    if not config.per_device_batch_size:
        return config
    try:
        devices = config.devices or len(config.device_ids) or sum(devices_per_node(config.devices_per_node))
        parts = mesh_of(config.mesh, devices).batch
    except ValueError:
        # `cross_check` says so.
        return config
    size = config.per_device_batch_size * parts
    return msgspec.structs.replace(config, global_batch_size=size, per_device_batch_size=0)


def _in_words_of(config: RunConfig, problems: Iterable[Problem]) -> list[Problem]:
    """Returns problems of a global batch as those of the key that makes it."""
    if not config.per_device_batch_size:
        return list(problems)
    keys = {"global_batch_size": "per_device_batch_size"}
    return [
        Problem(keys.get(problem.key, problem.key), problem.message, tuple(keys.get(key, key) for key in problem.also))
        for problem in problems
    ]


def cross_check(config: RunConfig) -> list[Problem]:
    """Returns problems of values that are each allowed but do not fit together.

    Reads no file: a run whose npz:PATH is gone is read all the same. `placement.check_data` reads them.
    """
    return _in_words_of(config, _cross_check(with_global_batch(config)))


def _cross_check(config: RunConfig) -> list[Problem]:
    if unreadable := _unreadable(config, _GRAMMARS):
        return unreadable
    problems = _check_training(config) if BACKENDS[config.backend].builtin else _unreadable(config, _SCRIPT_GRAMMARS)
    problems += _check_nodes(config)
    if config.device_ids and config.devices not in (0, len(config.device_ids)):
        problems.append(
            Problem("devices", f"{config.devices} does not fit the {len(config.device_ids)} GPUs in device_ids.")
        )
    if len(set(config.device_ids)) < len(config.device_ids):
        problems.append(Problem("device_ids", f"{', '.join(config.device_ids)} names a GPU twice."))
    if config.platform == "cpu" and config.device_ids:
        problems.append(Problem("device_ids", GPUS_ON_CPU))
    most = BACKENDS[config.backend].max_cpu_devices
    if config.platform == "cpu" and most and config.devices > most:
        message = f"{config.backend} runs on one CPU device only, not on {config.devices}; use torch-ddp for more."
        problems.append(Problem("devices", message, also=("backend", "platform")))
    elif config.compile and config.devices > (BACKENDS[config.backend].max_compiled_devices or config.devices):
        message = "cannot compile a model's copies on several devices; use one device, or torch-ddp."
        problems.append(Problem("compile", message, also=("backend", "devices")))
    problems += _check_cuda_graphs(config)
    if config.learning_rate_scaling != "linear" and not config.learning_rate_for:
        message = f"{config.learning_rate_scaling} has no effect unless learning_rate_for names a batch."
        problems.append(Problem("learning_rate_scaling", message, also=("learning_rate_for",)))
    if config.optimizer == "sgd" and config.nesterov and not config.momentum:
        problems.append(Problem("nesterov", "needs a momentum above 0.", also=("momentum",)))
    if config.platform == "cpu" and config.precision == "tf32":
        problems.append(Problem("precision", "tf32 is a GPU format; on the CPU use float32."))
    elif config.precision not in (precisions := BACKENDS[config.backend].precisions):
        message = f"{config.backend} cannot train in {config.precision}; it takes {' or '.join(precisions)}."
        problems.append(Problem("precision", message, also=("backend",)))
    elif config.precision in HALF and config.model.startswith(PY) and not BACKENDS[config.backend].autocasts:
        message = f"{config.backend} cannot change the type of your own model's layers: use float32."
        if config.precision == "bfloat16":
            message = message.replace("use float32", "give them bfloat16 in its file")
        problems.append(Problem("precision", message, also=("backend", "model")))
    return problems


def _check_cuda_graphs(config: RunConfig) -> list[Problem]:
    """Returns problems of replaying a step as a CUDA graph, where nothing may wait for the host or another GPU."""
    reasons = {
        "platform": (config.platform == "cpu", "are of NVIDIA's GPUs: leave them out on the CPU"),
        "devices": (config.devices > 1, f"are for one GPU, not for {config.devices}: take one, or leave them out"),
        "model": (
            config.model.startswith(PY),
            "are for the models that ship: yours may wait for the host",
        ),
        "sync_batch_norm": (config.sync_batch_norm, "are for one GPU, which has no statistics to synchronize"),
        "compile": (config.compile, "come with compile where they can be used: set one of the two"),
    }
    wrong = {key: why for key, (is_so, why) in reasons.items() if config.cuda_graphs and is_so}
    return [Problem("cuda_graphs", f"CUDA graphs {why}.", also=(key,)) for key, why in wrong.items()]


def _check_training(config: RunConfig) -> list[Problem]:
    problems = _check_task(config)
    if config.early_stop and not config.eval_every:
        message = "without evaluations there is no best one: use eval_every = 1."
        problems.append(Problem("early_stop", message, also=("eval_every",)))
    if config.best.startswith(BEST_OWN) and not config.model.startswith(PY):
        message = f"{config.best} is for a model of your own (py:), whose file has such a metric; use accuracy or loss."
        problems.append(Problem("best", message, also=("model",)))
    if not problems and config.dataset in DATASETS:
        try:
            problems = check_batch(config, find_dataset(config.dataset, config.context))
        except DatasetError as error:
            problems = [Problem("context", str(error), also=("dataset",))]
    mesh = mesh_of(config.mesh, config.devices)
    if config.mesh and (mesh_problems := _check_mesh(config, mesh)):
        return [*problems, *mesh_problems]
    shares = _check_shares(config)
    if config.global_batch_size > (most := OPTIONS["global_batch_size"].maximum or 0):
        message = f"{config.global_batch_size:,} examples a step are too many: use a global batch of at most {most:,}."
        problems.append(Problem("global_batch_size", message, also=("devices",)))
    if not problems and config.shares == EQUAL and config.global_batch_size % mesh.batch:
        over = f"the {mesh.batch} devices of mesh {mesh} along batch" if config.mesh else f"{mesh.batch} devices"
        problems.append(
            Problem(
                "global_batch_size",
                f"{config.global_batch_size} cannot be split evenly over {over}; "
                f"{_multiples(config.global_batch_size, mesh.batch)}.",
                also=("mesh",) if config.mesh else ("devices",),
            )
        )
    local = config.global_batch_size // mesh.batch
    if config.accumulate > 1 and "accumulate" not in BACKENDS[config.backend].keys:
        message = f"{config.backend} takes a batch as a whole: use 1, or another backend."
        problems.append(Problem("accumulate", message, also=("backend",)))
    elif not problems and config.shares == EQUAL and (config.devices or config.mesh) and local % config.accumulate:
        message = f"{local} examples of each device make no {config.accumulate} equal parts: use a divisor of {local}."
        problems.append(Problem("accumulate", message, also=("global_batch_size", "devices")))
    return problems + shares


def _check_shares(config: RunConfig) -> list[Problem]:
    """Returns problems of how a batch is divided over the ranks, as far as their number is known."""
    try:
        if weights(config.shares) and config.devices:
            nodes = devices_per_node(config.devices_per_node) or (config.devices // config.nodes,) * config.nodes
            divide_batch(config.shares, config.global_batch_size, nodes, config.accumulate)
    except ValueError as error:
        return [Problem("shares", str(error), also=("global_batch_size", "devices", "nodes", "accumulate"))]
    units, remainder = divmod(config.global_batch_size, config.accumulate)
    if config.shares == MEASURED and remainder:
        message = f"{config.global_batch_size} makes no {config.accumulate} equal parts, which accumulate asks for."
        return [Problem("global_batch_size", message, also=("accumulate", "shares"))]
    if config.shares == MEASURED and units < config.devices:
        message = f"{config.global_batch_size} leaves a rank none: use {config.devices * config.accumulate} or more."
        return [Problem("global_batch_size", message, also=("devices", "accumulate", "shares"))]
    if config.shares != EQUAL and "shares" not in BACKENDS[config.backend].keys:
        message = f"{config.backend} splits one array into equal parts; use {' or '.join(backends_with('shares'))}."
        return [Problem("shares", message, also=("backend",))]
    return []


def _check_mesh(config: RunConfig, mesh: Mesh) -> list[Problem]:
    if "mesh" not in BACKENDS[config.backend].keys:
        message = f"{config.backend} has no mesh: leave it empty, or use {' or '.join(backends_with('mesh'))}."
        return [Problem("mesh", message, also=("backend",))]
    count = config.devices or len(config.device_ids)
    if count and mesh.batch * mesh.model != count:
        named = "devices" if config.devices else "device_ids"
        fitting = [str(Mesh(count // model, model)) for model in range(1, count + 1) if count % model == 0]
        message = f"{config.mesh} is {mesh.batch * mesh.model} devices, but {named} says {count}: "
        return [Problem("mesh", f"{message}{' or '.join(fitting[:4])} would be.", also=(named,))]
    return []


def _check_task(config: RunConfig) -> list[Problem]:
    """Returns problems of a model, or a backend, that is for other data."""
    task, model, backend = task_of(config.dataset), MODELS.get(config.model), BACKENDS[config.backend]
    if config.normalize and task is not IMAGES:
        message = f"only images are normalized; {config.dataset} is {task.name}: leave it empty."
        return [Problem("normalize", message, also=("dataset",))]
    if config.augment != "off" and task is not IMAGES:
        message = f"{config.augment} changes images; {config.dataset} is {task.name}: use off."
        return [Problem("augment", message, also=("dataset",))]
    if model and model.task != task.name:
        those = ", ".join(row.name for row in MODELS.values() if row.task == task.name)
        message = f"{model.name} trains on {model.task}, not on {task.name} as of {config.dataset}: use {those}."
        return [Problem("model", message, also=("dataset",))]
    if task.name not in backend.tasks:
        backends = ", ".join(row.name for row in BACKENDS.values() if row.builtin and task.name in row.tasks)
        message = f"{backend.name} has no model for {task.name} as of {config.dataset}: use {backends}."
        return [Problem("backend", message, also=("dataset",))]
    return []


_GRAMMARS: Mapping[str, Callable[[str], object]] = {
    "mesh": parse_mesh,
    "shares": weights,
    "normalize": parse_normalization,
    "devices_per_node": devices_per_node,
    "slurm": split_words,
    "master_port": read_ports,
}
"""What reads the values that have a grammar of their own, and raises ValueError."""
_SCRIPT_GRAMMARS: Mapping[str, Callable[[str], object]] = {
    "script": check_name,
    "arguments": split_words,
    "values": read_texts,
    "environment": read_environment,
    "output_pattern": compile_pattern,
}


def _unreadable(config: RunConfig, readers: Mapping[str, Callable[[str], object]]) -> list[Problem]:
    problems = []
    for key, read in readers.items():
        try:
            read(getattr(config, key))
        except ValueError as error:
            problems.append(Problem(key, str(error)))
    return problems


def _check_nodes(config: RunConfig) -> list[Problem]:
    """Returns problems of a run on several machines."""
    if config.launcher == "local":
        return []
    problems = []
    if config.launcher == "slurm" and config.platform == "auto":
        message = "auto is decided by this machine, but the job runs on others; use cuda or cpu."
        problems.append(Problem("platform", message, also=("launcher",)))
    uneven = devices_per_node(config.devices_per_node)
    nodes = len(uneven) or config.nodes
    if uneven and config.nodes not in (1, nodes):
        message = f"{config.devices_per_node} has {nodes} nodes, but nodes is {config.nodes}."
        problems.append(Problem("devices_per_node", message, also=("nodes",)))
    elif uneven and config.devices not in (0, sum(uneven)):
        message = f"{config.devices_per_node} makes {sum(uneven)} devices, but devices is {config.devices}."
        problems.append(Problem("devices_per_node", message, also=("devices",)))
    elif uneven and len(set(uneven)) > 1 and (why := BACKENDS[config.backend].equal_nodes):
        message = f"{config.devices_per_node} cannot be: {why}; use jax-sharding."
        problems.append(Problem("devices_per_node", message, also=("backend",)))
    elif not uneven and config.devices % nodes:
        message = f"{config.devices} cannot be split evenly over {nodes} nodes; {_multiples(config.devices, nodes)}. "
        message += "Or say how many each has, as devices_per_node = 4+2."
        problems.append(Problem("devices", message, also=("nodes", "devices_per_node")))
    if config.device_ids:
        message = "names GPUs of this machine, but each node takes its own idle ones: leave it empty."
        problems.append(Problem("device_ids", message, also=("launcher",)))
    if config.launcher == "ssh" and len(config.hosts) != nodes - 1:
        message = f"{nodes}, but hosts has {len(config.hosts)}; nodes counts them and this machine."
        problems.append(Problem("nodes", message, also=("hosts",)))
    elif config.launcher in ("join", "ssh") and nodes == 1:
        message = f"1 is this machine alone; {config.launcher} takes 2 or more. For this machine use launcher local."
        problems.append(Problem("nodes", message, also=("launcher",)))
    if nodes > 1 and BACKENDS[config.backend].max_nodes == 1:
        message = f"{config.backend} is one process, on one machine; use torch-ddp for more."
        problems.append(Problem("nodes", message, also=("backend",)))
    return problems


def check_batch(config: RunConfig, data: Dataset) -> list[Problem]:
    """Checks that the data set has enough training examples for one step."""
    size = with_global_batch(config).global_batch_size
    if size <= data.train_examples:
        return []
    examples = f"{data.train_examples:,} training examples of {config.dataset}"
    return _in_words_of(config, [Problem("global_batch_size", f"{size:,} is more than the {examples}.")])


def best_by(config: RunConfig) -> str:
    """Returns by which figure evaluations are the best: the key `best`, if the task, or one's own model, has it."""
    allowed = task_of(config.dataset).best_by
    return config.best if config.best in allowed or config.best.startswith(BEST_OWN) else allowed[0]


def figure_of(best: str) -> tuple[str, bool]:
    """Returns the figure's name in a value of the key `best`, and whether more of it is better."""
    direction = next((prefix for prefix in BEST_OWN if best.startswith(prefix)), "")
    return best.removeprefix(direction), direction == HIGHEST or best == "accuracy"


def beside_own_loss(config: RunConfig, file: str) -> dict[str, str]:
    """Returns the keys that mean nothing beside a loss of the user's own, which `file` has, and what to do."""
    useless = {"label_smoothing": (bool(config.label_smoothing), "0"), "augment": (config.augment == "mixup", "off")}
    message = f"changes what cross entropy is taken of, but {file} has a loss of its own: use"
    return {key: f"{message} {off}, or rename the loss." for key, (is_set, off) in useless.items() if is_set}


def _multiples(size: int, devices: int) -> str:
    low = size // devices * devices
    return f"{low} or {low + devices} can" if low else f"{devices} can"


def to_mapping(config: RunConfig) -> dict[str, Value]:
    """Returns the configuration as plain values, in the order of the keys."""
    return {key: getattr(config, key) for key in OPTIONS}


def changed_keys(config: RunConfig, base: RunConfig) -> dict[str, Value]:
    """Returns the keys of `config` whose values differ from those of `base`."""
    return {key: getattr(config, key) for key in OPTIONS if getattr(config, key) != getattr(base, key)}


def to_toml_values(config: RunConfig) -> dict[str, object]:
    """Returns the configuration as TOML and JSON can hold it: the keys that concern its kind of backend."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in to_mapping(config).items()
        if takes(config.backend, key)
    }


def to_toml(config: RunConfig) -> str:
    """Returns the text of a configuration file with all keys."""
    # Only writing needs it; the dashboard's first picture does not.
    import tomlkit

    # A document of the library's own takes three times as long to make.
    values = {"schema": SCHEMA, **to_toml_values(config)}
    return "".join(f"{key} = {tomlkit.item(value).as_string()}\n" for key, value in values.items())


def _read_lines(text: str) -> dict[str, Any] | None:
    """Reads a file with a key and its value on each line, as `to_toml` writes it; None of any other.

    A list reads the files of a thousand runs, of which most lines are alike.
    """
    table: dict[str, Any] = {}
    for line in filter(None, text.split("\n")):
        item = _read_line(line)
        if item is None or item[0] in table:
            return None
        key, value = item
        table[key] = list(value) if isinstance(value, list) else value
    return table


@lru_cache(KEPT_LINES)
def _read_line(line: str) -> tuple[str, object] | None:
    # What ends on another line is no TOML by itself; the keys after a table's head are the table's.
    try:
        ((key, value),) = tomllib.loads(line).items()
    except (ValueError, RecursionError):
        return None
    return None if isinstance(value, dict) or line.lstrip().startswith("[") else (key, value)


def parse_toml(text: str, source: str, also: frozenset[str] = frozenset()) -> tuple[RunConfig, dict[str, object]]:
    """Parses a configuration file named `source`; raises ConfigError for no TOML, another schema, or wrong values.

    `also` are further top-level keys the file may have (a preset's description); returned unchecked.
    """
    try:
        table = _read_lines(text)
        table = tomllib.loads(text) if table is None else table
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([Problem("", f"is not valid TOML: {error}")], source) from None
    except ValueError as error:  # an int of thousands of digits
        raise ConfigError([Problem("", f"cannot be read: {error}")], source) from None
    except RecursionError:
        raise ConfigError([Problem("", "cannot be read: its values are nested too deeply")], source) from None
    schema = table.pop("schema", SCHEMA)
    if type(schema) is not int or schema != SCHEMA:
        message = f"{shown(schema)} is not supported: this version of tuiapp reads schema {SCHEMA}."
        raise ConfigError([Problem("schema", message)], source)
    extra = {key: table.pop(key) for key in also & table.keys()}
    return build_config(table, source), extra


def actual_rate(config: RunConfig) -> float:
    """Returns what warm-up rises to and the schedule falls from."""
    if not config.learning_rate_for:
        return config.learning_rate
    ratio = config.global_batch_size / config.learning_rate_for
    return config.learning_rate * (sqrt(ratio) if config.learning_rate_scaling == "sqrt" else ratio)


def learning_rate_words(config: RunConfig) -> str:
    """Says what a rate given for another batch comes to, "0.1 for 256 → 0.4 at 1,024"; "" if it is used as given."""
    if not config.learning_rate_for:
        return ""
    meant = f"{config.learning_rate:.6g} for {config.learning_rate_for:,}"
    return f"{meant} → {actual_rate(config):.6g} at {config.global_batch_size:,}"


def started_rate_words(config: Mapping[str, object]) -> str:
    """Returns `learning_rate_words` of a configuration as a journal has it; "" if it cannot be read."""
    if not config.get("learning_rate_for"):
        return ""
    try:
        return learning_rate_words(build_config(config))
    except ConfigError:
        return ""
