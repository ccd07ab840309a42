"""The backends and models, as data; and what of a backend an interpreter lacks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod
from typing import TypeAlias

from tuiapp.trainers.config.installed import OWN, TORCH_CUDA, Installed
from tuiapp.trainers.config.machine import Machine, unsuited
from tuiapp.trainers.config.mesh import OUTPUTS, TRANSFORMER, Rules
from tuiapp.trainers.tasks.catalog import IMAGES, TEXT

JAX_CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
"""Import names of JAX's NVIDIA GPU support."""
OLDER_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cu126"

LEAST_PYTHON = (3, 11)
RANK_NEEDS = {"msgspec": (0, 19), "numpy": (1, 23)}
"""What ranks need beside their framework, and the least versions."""

NEWEST_TESTED = {"torch": (2, 15), "jax": (0, 12), "flax": (0, 12), "keras": (3, 15), "mxnet": (1, 9), "numpy": (2, 5)}
"""The newest versions with which every backend that they are for passes the quickstart: `pytest -m slow`, see
`tests/real/test_versions.py`. Newer ones are not refused; `tuiapp doctor` names them.
"""


Shape: TypeAlias = tuple[int, ...]
"""The shape of an input: an image's height, width, channels; a window of text's bytes."""


@dataclass(frozen=True, slots=True)
class Backend:
    name: str
    module: str
    """Imported only by the rank process; has `train(config, rank, report, checkpoints)`. "" unless built in."""
    summary: str
    packages: tuple[str, ...]
    """Import names that must be installed."""
    extras: tuple[str, ...]
    engine: str
    """What computes, and owns the devices: "torch", "jax" or "mxnet"; "" for a program of the user's own."""
    process_per_device: bool
    """True if each device has its own rank process; False if one process owns all devices."""
    max_cpu_devices: int | None = None
    """How many CPU devices it can use; None: no limit of its own."""
    max_nodes: int | None = None
    """How many machines; None: no limit of its own."""
    equal_nodes: str = ""
    """Why all nodes must have equally many devices; "": they need not."""
    keras_backend: str = ""
    keys: tuple[str, ...] = ()
    """Configuration keys that only some backends take, and this one does."""
    autocasts: bool = False
    """Whether the framework computes in half the bits whatever the type of a model's layers."""
    max_compiled_devices: int | None = None
    """How many devices `compile` can serve; None: all."""
    takes_listener: bool = True
    """Whether rank 0 serves the rendezvous on a socket that is passed to it; False if it opens its own."""
    precisions: tuple[str, ...] = ("float32", "tf32", "bfloat16", "float16")
    """Arithmetic it can train with."""
    tasks: tuple[str, ...] = (IMAGES.name,)
    """What it has models for."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of its ranks; values that the user has set come first."""
    splits_state: bool = False
    """Whether parameters, gradients and optimizer state are split over the devices, not on each of them whole."""
    threads_per_device: bool = False
    """Whether its one process has OMP_NUM_THREADS threads for each CPU device, not for all of them together."""
    collectives: str = "nccl"
    """By what GPUs exchange arrays; "": by copies from one to the other."""
    builtin: bool = True
    """Whether it trains our models on our data; False: a program of the user's own, which takes only `keys` and
    `COMMON_KEYS`.
    """

    @property
    def profiler(self) -> str:
        """What can trace its steps; "" for none."""
        return f"{self.engine}.profiler" if self.engine in ("torch", "jax") and self.builtin else ""

    @property
    def framework(self) -> str:
        """What its environment is called; "" for a program of the user's own."""
        return self.packages[0] if self.packages else ""

    def missing(self, installed: Installed = OWN) -> list[str]:
        return [name for name in self.packages if not installed.has(name)]

    def unavailable(self, installed: Installed = OWN) -> str:
        """Returns why its ranks cannot run in an interpreter, and how to mend that; "" if they can."""
        missing, old = self.missing(installed), []
        wanted, pip, where = [], "pip", ""
        if missing:
            wanted = [requirement for extra in self.extras for requirement in _requirements(extra)] or [*self.packages]
        if installed is not OWN:
            pip, where = f"{shlex.quote(installed.python)} -m pip", f" in {installed.python}"
            if _numbers(installed.version) < LEAST_PYTHON:
                least = ".".join(map(str, LEAST_PYTHON))
                return f"{installed.python} is Python {installed.version}; ranks need {least} or newer"
            for name, least_version in RANK_NEEDS.items():
                version = installed.version_of(name)
                if version is None:
                    missing.append(name)
                elif version and _numbers(version) < least_version:
                    old.append(f"{name} {version} is too old")
                else:
                    continue
                wanted.append(f"{name}>={'.'.join(map(str, least_version))}")
        if not wanted:
            return ""
        why = [*([f"{', '.join(missing)} not installed{where}"] if missing else []), *old]
        remedies = [f"{pip} install {' '.join(map(repr, wanted))}"]
        if installed is OWN:
            # What has no extra does not go together with tuiapp's own packages.
            remedies = [*(remedies if self.extras else []), f"tuiapp env create {self.framework}"]
        return f"{', '.join(why)}: {', or '.join(remedies)}"

    def without_gpus(self, installed: Installed = OWN, machine: Machine | None = None) -> str:
        """Returns why its framework, as it is installed, cannot use GPUs, or those of a machine; "" if it can."""
        if reason := self._built_for_cpus(installed):
            return reason
        if machine is None:
            return ""
        if self.engine == "jax":
            plugin = next(name for name in JAX_CUDA_PLUGINS if installed.has(name))
            cuda = plugin.removeprefix("jax_cuda").removesuffix("_plugin")
            return unsuited(f"jax {installed.version_of('jax')}", cuda, machine, "pip install 'jax[cuda12]'")
        if self.engine == "torch" and (cuda_version := installed.version_of(TORCH_CUDA)):
            return unsuited(f"torch {installed.version_of('torch')}", cuda_version, machine, OLDER_TORCH)
        return ""

    def _built_for_cpus(self, installed: Installed) -> str:
        if self.engine == "jax" and not any(map(installed.has, JAX_CUDA_PLUGINS)):
            pip = "pip" if installed is OWN else f"{shlex.quote(installed.python)} -m pip"
            return f"jax is installed without CUDA: {pip} install 'jax[cuda13]'"
        torch = installed.version_of("torch") if self.engine == "torch" else None
        if torch and torch.endswith("+cpu"):
            return f"torch {torch} is a build for CPUs: install one for CUDA, see https://pytorch.org"
        if mxnet := installed.version_of("mxnet") if self.engine == "mxnet" else None:
            # Builds for CUDA are distributions of other names.
            return f"mxnet {mxnet} is a build for CPUs: install one for CUDA, such as mxnet-cu112"
        return ""


Weights: TypeAlias = dict[str, Shape]
"""Name in Flax → shape."""


@dataclass(frozen=True, slots=True)
class Size:
    weights: Weights
    """The weights that are trained."""
    activations: int
    """Numbers that one example's forward pass keeps for the backward pass: what products, normalizations and
    activation functions are computed from.
    """
    flops: int
    """Floating point operations of one example's forward and backward pass, matrix products and convolutions only:
    "model FLOPs" as used for efficiency.
    """
    pooled: int = 0
    """Numbers that one example's max-pooling gives; the place of each is kept."""
    scores: int = 0
    """Attention scores of one example: its pairs of tokens, over all heads."""
    normalized: int = 0
    """The largest BatchNorm's inputs, of one example."""

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.weights.values()))


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    summary: str
    size: Callable[[Shape, int], Size]
    """From input shape and class count."""
    min_side: int = 1
    """Minimum height and width in pixels, so that every layer has some to work on."""
    batch_norm: bool = True
    task: str = IMAGES.name
    rules: Rules = field(default_factory=lambda: OUTPUTS)
    """How its weights are split over a mesh."""


HALF = ("bfloat16", "float16")
"""Precisions of 16 bits."""

MLP_WIDTHS = (256, 128)
NET_CHANNELS = (32, 64)
NET_HIDDEN = 128
CONVNET_LAYERS = ((12, 3, 1, False, True), (24, 6, 2, False, False), (32, 6, 2, True, True))
"""Channels, kernel size, stride, whether there is a bias, whether the input is padded ("SAME")."""
CONVNET_HIDDEN = 256
RESNET_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels, and the stride of the first block."""
RESNET_BLOCKS = 2
GPT_LAYERS = 4
GPT_WIDTH = 128
GPT_HEADS = 4
GPT_DEVIATION = 0.02
"""Deviation of the initial weights; where they end in the residual stream it is divided by the root of their number."""


def _training_flops(multiplications: list[int]) -> int:
    """Returns the FLOPs of one example, forward and backward, from each layer's multiplications.

    A layer's output, the gradient of its weights and that of its input are one product of the same size each, of two
    operations per multiplication; the first layer's input needs no gradient.
    """
    return 2 * (3 * sum(multiplications) - multiplications[0])


def _kernel(name: str, *shape: int, bias: bool = True) -> Weights:
    """Returns the weights of a dense layer or a convolution: inputs and outputs come last."""
    return {f"{name}.kernel": shape, **({f"{name}.bias": shape[-1:]} if bias else {})}


def _norm(name: str, channels: int, *, scale: bool = True) -> Weights:
    return {**({f"{name}.scale": (channels,)} if scale else {}), f"{name}.bias": (channels,)}


def _mlp_size(shape: Shape, classes: int) -> Size:
    widths = (prod(shape), *MLP_WIDTHS, classes)
    weights: Weights = {}
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        weights |= _kernel(f"fc{number}" if number <= len(MLP_WIDTHS) else "out", inputs, outputs)
    return Size(
        weights,
        activations=sum(widths),
        flops=_training_flops([i * o for i, o in pairwise(widths)]),
    )


def _net_size(shape: Shape, classes: int) -> Size:
    height, width, channels = shape
    weights: Weights = {}
    activations, pooled = prod(shape), 0
    products, normalized = [], []
    for number, outputs in enumerate(NET_CHANNELS, start=1):
        height, width = height - 2, width - 2
        products.append(height * width * outputs * channels * 9)
        weights |= _kernel(f"conv{number}", 3, 3, channels, outputs) | _norm(f"bn{number}", outputs)
        activations += 2 * height * width * outputs  # convolution, ReLU: BatchNorm's is made anew, or not needed
        normalized.append(height * width * outputs)
        height, width, channels = height // 2, width // 2, outputs
        pooled += height * width * channels
    flat = height * width * channels
    weights |= _kernel("fc1", flat, NET_HIDDEN) | _kernel("fc2", NET_HIDDEN, classes)
    products += [flat * NET_HIDDEN, NET_HIDDEN * classes]
    activations += pooled + NET_HIDDEN + classes
    return Size(weights, activations, _training_flops(products), pooled=pooled, normalized=max(normalized))


def _convnet_size(shape: Shape, classes: int) -> Size:
    height, width, channels = shape
    weights: Weights = {}
    activations = prod(shape)
    products, normalized = [], []
    for number, (outputs, kernel, stride, bias, padded) in enumerate(CONVNET_LAYERS, start=1):
        # Padded to keep every pixel, or only where the kernel fits.
        lost = 0 if padded else kernel - 1
        height, width = -(-(height - lost) // stride), -(-(width - lost) // stride)
        products.append(height * width * outputs * channels * kernel**2)
        weights |= _kernel(f"conv{number}", kernel, kernel, channels, outputs, bias=bias)
        weights |= _norm(f"bn{number}", outputs, scale=False)
        activations += 2 * height * width * outputs  # convolution, ReLU
        normalized.append(height * width * outputs)
        channels = outputs
    weights |= _kernel("fc1", channels, CONVNET_HIDDEN) | _kernel("fc2", CONVNET_HIDDEN, classes)
    products += [channels * CONVNET_HIDDEN, CONVNET_HIDDEN * classes]
    activations += channels + 3 * CONVNET_HIDDEN + classes
    return Size(weights, activations, _training_flops(products), normalized=max(normalized))


def _resnet18_size(shape: Shape, classes: int) -> Size:
    height, width, inputs = shape
    channels = RESNET_STAGES[0][0]
    weights = _kernel("conv", 3, 3, inputs, channels) | _norm("bn", channels)
    normalized = height * width * channels
    activations = prod(shape) + 2 * normalized  # convolution, ReLU
    products = [height * width * channels * inputs * 9]
    for stage, (outputs, first_stride) in enumerate(RESNET_STAGES, start=1):
        for block in range(1, RESNET_BLOCKS + 1):
            stride, name = first_stride if block == 1 else 1, f"stage{stage}_block{block}"
            height, width = -(-height // stride), -(-width // stride)
            for number, kernels in enumerate((channels, outputs), start=1):
                weights |= _kernel(f"{name}.conv{number}", 3, 3, kernels, outputs)
                weights |= _norm(f"{name}.bn{number}", outputs)
            activations += 4 * height * width * outputs  # twice convolution, ReLU
            products += [height * width * outputs * kernels * 9 for kernels in (channels, outputs)]
            if stride > 1:
                weights |= _kernel(f"{name}.shortcut", 1, 1, channels, outputs)
                products.append(height * width * outputs * channels)
            channels = outputs
    flops = _training_flops([*products, channels * classes])
    weights |= _kernel("fc", channels, classes)
    return Size(weights, activations + channels + classes, flops, normalized=normalized)


def _gpt_size(shape: Shape, classes: int) -> Size:
    """Returns the size of a GPT: attention counts all pairs of tokens, although the mask leaves half of them out."""
    (context,), width = shape, GPT_WIDTH
    weights: Weights = {"tokens.embedding": (classes, width), "places.embedding": (context, width)}
    for name in (f"block{number}" for number in range(1, GPT_LAYERS + 1)):
        weights |= _norm(f"{name}.norm1", width) | _kernel(f"{name}.qkv", width, 3 * width)
        weights |= _kernel(f"{name}.out", width, width) | _norm(f"{name}.norm2", width)
        weights |= _kernel(f"{name}.fc1", width, 4 * width) | _kernel(f"{name}.fc2", 4 * width, width)
    weights |= _norm("norm", width) | _kernel("head", width, classes, bias=False)
    products = context * (GPT_LAYERS * (12 * width**2 + 2 * context * width) + width * classes)
    # Of each block both norms, queries, keys and values, attention, its projection, and the hidden layer's three.
    activations = context * ((2 + 16 * GPT_LAYERS + 1) * width + classes)
    # Embeddings multiply nothing, and all products' inputs need gradients.
    return Size(weights, activations, _training_flops([0, products]), scores=GPT_LAYERS * GPT_HEADS * context**2)


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            "torch-ddp",
            "tuiapp.trainers.backends.torch_ddp",
            "PyTorch DistributedDataParallel: one process per device, gradients averaged by all-reduce",
            packages=("torch",),
            extras=("torch",),
            engine="torch",
            process_per_device=True,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "sync_batch_norm", "compile", "cuda_graphs", "check_replicas", "shares"),
            autocasts=True,
        ),
        Backend(
            "torch-fsdp",
            "tuiapp.trainers.backends.torch_fsdp",
            "PyTorch FSDP2: one process per device, weights and optimizer state split over them, gathered by block",
            packages=("torch",),
            extras=("torch",),
            engine="torch",
            process_per_device=True,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "sync_batch_norm", "compile", "shares"),
            autocasts=True,
            splits_state=True,
        ),
        Backend(
            "torch-dp",
            "tuiapp.trainers.backends.torch_dp",
            "PyTorch DataParallel: one process copies the model to every GPU at each step; CPU: one device only",
            packages=("torch",),
            extras=("torch",),
            engine="torch",
            process_per_device=False,
            max_cpu_devices=1,
            max_nodes=1,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "compile"),
            autocasts=True,
            # The copies for several devices are beyond torch.compile: https://github.com/pytorch/pytorch/issues/94636
            max_compiled_devices=1,
        ),
        Backend(
            "jax-sharding",
            "tuiapp.trainers.backends.jax_sharding",
            "JAX: one jit-compiled step over a mesh, batch sharded, state on every device or split (mesh)",
            packages=("jax", "flax", "optax"),
            extras=("jax",),
            engine="jax",
            process_per_device=False,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "check_replicas", "mesh"),
            takes_listener=False,
        ),
        Backend(
            "jax-pmap",
            "tuiapp.trainers.backends.jax_pmap",
            "JAX pmap: one program per device with its replica, gradients averaged by pmean",
            packages=("jax", "flax", "optax"),
            extras=("jax",),
            engine="jax",
            process_per_device=False,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "check_replicas"),
            takes_listener=False,
            equal_nodes="jax.pmap takes as many devices of each process",
        ),
        Backend(
            "keras-jax",
            "tuiapp.trainers.backends.keras_jax",
            "Keras on JAX: one jit-compiled step over a mesh, batch sharded, variables on every device or split (mesh)",
            packages=("keras", "jax"),
            extras=("keras", "jax"),
            engine="jax",
            process_per_device=False,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "check_replicas", "mesh"),
            takes_listener=False,
            keras_backend="jax",
        ),
        Backend(
            "keras-torch",
            "tuiapp.trainers.backends.keras_torch",
            "Keras on PyTorch in DistributedDataParallel: one process per device, gradients averaged by all-reduce",
            packages=("keras", "torch"),
            extras=("keras", "torch"),
            engine="torch",
            process_per_device=True,
            tasks=(IMAGES.name, TEXT.name),
            keys=("accumulate", "ema", "check_replicas", "shares"),
            keras_backend="torch",
        ),
        Backend(
            "mxnet-gluon",
            "tuiapp.trainers.backends.mxnet_gluon",
            "MXNet Gluon: one process splits the batch over its contexts, gradients added up by a key-value store",
            packages=("mxnet",),
            extras=(),
            engine="mxnet",
            process_per_device=False,
            keys=("check_replicas",),
            precisions=("float32",),
            environment=(
                # MXNet's handler of crashes would replace Python's, which writes the stacks.
                ("MXNET_USE_SIGNAL_HANDLER", "0"),
                # cuDNN computes float32 convolutions in TF32 unless told otherwise, for which MXNet has no setting.
                ("NVIDIA_TF32_OVERRIDE", "0"),
                # Threads that wait for each other would otherwise spin, and take the cores from those that compute.
                ("OMP_WAIT_POLICY", "passive"),
            ),
            max_nodes=1,
            threads_per_device=True,
            collectives="",
        ),
        Backend(
            "script",
            "",
            "your own script, unchanged: a process per device in torchrun's environment, or a single one",
            packages=(),
            extras=(),
            engine="",
            process_per_device=True,
            takes_listener=False,
            builtin=False,
            keys=(
                "script", "arguments", "values", "processes", "working_directory", "environment",
                "output_pattern", "tensorboard_dir", "stop_grace_s",
            ),
        ),
    )
}  # fmt: skip

COMMON_KEYS = (
    "backend", "python", "platform", "devices", "device_ids", "launcher", "nodes", "hosts", "slurm", "requeue",
    "devices_per_node", "network", "node_grace_s", "mirror",
)  # fmt: skip
"""Configuration keys that every backend takes."""

PACKAGES = tuple(
    dict.fromkeys(
        [
            *RANK_NEEDS,
            *(name for backend in BACKENDS.values() for name in backend.packages),
            *JAX_CUDA_PLUGINS,
            TORCH_CUDA,
        ]
    )
)
"""What an interpreter is asked for, by import names."""


def backends_with(key: str) -> tuple[str, ...]:
    """Returns the backends that take a configuration key which not all of them take."""
    return tuple(name for name, backend in BACKENDS.items() if key in backend.keys)


def takes(backend: str, key: str) -> bool:
    """Returns whether a key concerns a backend's kind: built in, or a program of the user's own."""
    declared = BACKENDS[backend]
    if declared.builtin:
        return all(other.builtin or key not in other.keys for other in BACKENDS.values())
    return key in declared.keys or key in COMMON_KEYS


MODELS = {
    model.name: model
    for model in (
        Model("mlp", "two hidden layers of 256 and 128 units", _mlp_size, min_side=1, batch_norm=False),
        Model("net", "the two-convolution network with BatchNorm of the DDP article", _net_size, min_side=10),
        Model("convnet", "three convolutions, BatchNorm and dropout, after the Keras guide", _convnet_size, min_side=6),
        Model("resnet18", "ResNet-18 for small images, as in Dive into Deep Learning", _resnet18_size, min_side=1),
        Model(
            "gpt-small",
            "a decoder-only transformer after GPT-2: 4 layers of 128, 4 heads",
            _gpt_size,
            batch_norm=False,
            task=TEXT.name,
            rules=TRANSFORMER,
        ),
    )
}

OPTIMIZER_SLOTS = {"sgd": 1, "adam": 2, "adamw": 2, "adadelta": 2}
"""Optimizer → arrays of the parameters' size in its state (sgd: with momentum)."""


def is_newer_than_tested(package: str, version: str) -> bool:
    """Returns whether a package's version, as its first two numbers, is above the newest that is tested."""
    return package in NEWEST_TESTED and _numbers(version) > NEWEST_TESTED[package]


def _requirements(extra: str) -> list[str]:
    """Returns what an extra installs, as the installed tuiapp declares it: right for a clone and a release alike."""
    from importlib.metadata import requires

    marked = [line.partition(";") for line in requires("tuiapp") or []]
    return [name.strip() for name, _, marker in marked if marker.replace("'", '"').strip() == f'extra == "{extra}"']


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def patterns_of(freeze: str) -> list[str]:
    """Returns the patterns for names that the key lists."""
    return [pattern for pattern in re.split(r"[,\s]+", freeze) if pattern]


def matching(pattern: str, names: Iterable[str], prefix: str = "") -> set[str]:
    """Returns those of the names that a pattern names, with or without the `prefix`."""
    return {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(prefix + name, pattern)}


def frozen_weights(backend: str, freeze: str, weights: Iterable[str]) -> set[str]:
    """Returns those of a catalog model's weights that `freeze` names, as the backend's framework calls them."""
    weight_of = {own_name(backend, name): name for name in weights}
    prefix = "params." if BACKENDS[backend].framework == "jax" else ""
    patterns = patterns_of(freeze)
    return {weight_of[name] for pattern in patterns for name in matching(pattern, weight_of, prefix)}


def own_name(backend: str, name: str) -> str:
    """Returns what a backend's framework calls a weight of the catalog, which has Flax's names: `conv1.kernel`."""
    owner = BACKENDS[backend]
    layer, _, kind = name.rpartition(".")
    of_norm = re.match(r"(bn|norm)\d*$", layer.rpartition(".")[2]) is not None
    if owner.keras_backend or owner.engine == "mxnet":
        kind = {"scale": "gamma", "bias": "beta"}.get(kind, kind) if of_norm else kind
    if owner.keras_backend:
        return f"{layer.replace('.', '_')}/{'embeddings' if kind == 'embedding' else kind}"
    return name if owner.engine == "jax" else f"{layer}.{'weight' if kind in WEIGHT else kind}"


WEIGHT = ("kernel", "scale", "embedding")
"""Kinds that PyTorch and MXNet call "weight"."""
