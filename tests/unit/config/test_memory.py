"""The memory estimate beside what PyTorch really holds, and what is said of too little."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.kit.model_tasks import EXAMPLE
from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.catalog import MODELS, OPTIMIZER_SLOTS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.memory import (
    check_data_fits,
    data_copies,
    estimate_memory,
    free_memory,
    on_host,
    parts_that_fit,
    shortages,
)
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch.models import build
from tuiapp.trainers.frameworks.torch.ranks import build_optimizer
from tuiapp.trainers.rank.initial import frozen_names
from tuiapp.trainers.state.text import format_bytes
from tuiapp.view.launch_warnings import memory_warning

CPU = RunConfig(platform="cpu", devices=2)


def of_model(model: str, **changes: object) -> RunConfig:
    """On data that it is for."""
    return msgspec.structs.replace(CPU, model=model, dataset=EXAMPLE[model], **changes)


def built(config: RunConfig, examples: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """The model, and a batch of zeros as it takes it."""
    data = find_dataset(config.dataset)
    *sides, channels = data.input_shape
    if not sides:
        return build(config.model, data.input_shape, data.classes), torch.zeros(examples, channels, dtype=torch.long)
    return build(config.model, data.input_shape, data.classes), torch.zeros(examples, channels, *sides)


def held(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", [*OPTIMIZER_SLOTS, "sgd without momentum"])
@pytest.mark.parametrize("model", MODELS)
def test_parameters_gradients_and_optimizer_are_those_of_torch(model: str, optimizer: str) -> None:
    name, _, without = optimizer.partition(" ")
    config = of_model(model, optimizer=name, momentum=0.0 if without else 0.9)
    estimate = estimate_memory(config)
    module, batch = built(config, 2)
    trained = build_optimizer(config, module)
    module(batch).sum().backward()
    trained.step()
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    assert estimate.parameters == held(parameters)
    assert estimate.gradients == held([parameter.grad for parameter in parameters if parameter.grad is not None])
    state = [tensor for kept in trained.state.values() for tensor in kept.values() if torch.is_tensor(tensor)]
    # Some count their steps, in a number each.
    assert estimate.optimizer == held([tensor for tensor in state if tensor.dim()])


@pytest.mark.nightly
@pytest.mark.parametrize("freeze", ["*bias", "*1.weight, fc*", "norm?.scale, *bn1*, block1*, out.*"])
@pytest.mark.parametrize("model", MODELS)
def test_of_frozen_parameters_torch_keeps_no_gradient_and_no_state(model: str, freeze: str) -> None:
    config = of_model(model, optimizer="adam")
    module, batch = built(config, 2)
    parameters = {name: one for name, one in module.named_parameters() if one.requires_grad}
    named = [pattern for pattern in freeze.split(", ") if any(fnmatchcase(name, pattern) for name in parameters)]
    config = msgspec.structs.replace(config, freeze=", ".join(named))
    for name in frozen_names(config.freeze, parameters):
        parameters[name].requires_grad_(False)
    trained = build_optimizer(config, module)
    module(batch).sum().backward()
    trained.step()
    estimate = estimate_memory(config)
    assert estimate.parameters == held(list(parameters.values()))
    assert estimate.gradients == held([one.grad for one in parameters.values() if one.grad is not None])
    state = [tensor for kept in trained.state.values() for tensor in kept.values() if torch.is_tensor(tensor)]
    assert estimate.optimizer == held([tensor for tensor in state if tensor.dim()])
    assert estimate.gradients < estimate.parameters


class Live(TorchDispatchMode):
    """Follows the bytes that live tensors hold, but for those that were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[StorageWeakRef, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        own = {StorageWeakRef(leaf.untyped_storage()) for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor) and (key := StorageWeakRef(leaf.untyped_storage())) not in own:
                self.live[key] = leaf.untyped_storage().nbytes()
        self.live = {key: size for key, size in self.live.items() if not key.expired()}
        self.most = max(self.most, sum(self.live.values()))
        return made


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", [name for name in MODELS if name != "mlp"])
def test_activations_are_what_a_step_of_torch_holds_beside_gradients(model: str, precision: str) -> None:
    """At the most, of each example: the difference that so many more make, of tensors without values.

    Those of `mlp` are little beside its weights.
    """

    def step(examples: int) -> tuple[int, int]:
        config = of_model(model, devices=1, global_batch_size=examples, precision=precision)
        with FakeTensorMode():
            module, batch = built(config, examples)
            with Live() as memory, torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                logits = module(batch).float().flatten(0, -2)
                cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long)).backward()
        return memory.most, estimate_memory(config).activations

    # Of so many that the gradients of weights, which come while activations go, are little beside them.
    (few, estimated), (many, more) = step(512), step(1024)
    print(f"{model}, {precision}: {(many - few) // 512:,} bytes an example, {(more - estimated) // 512:,} estimated")
    assert 0.75 < (more - estimated) / (many - few) < 1.25


def test_it_follows_batch_devices_and_precision() -> None:
    one = estimate_memory(CPU)
    assert estimate_memory(msgspec.structs.replace(CPU, devices=1)).activations == 2 * one.activations
    assert one.activations / 2 < estimate_memory(msgspec.structs.replace(CPU, precision="bfloat16")).activations
    averaging = estimate_memory(msgspec.structs.replace(CPU, ema=0.999))
    assert averaging.average == averaging.parameters == averaging.total - one.total
    assert one.data == 1797 * 28 * 28
    assert one.total == one.parameters + one.gradients + one.optimizer + one.activations + one.data
    assert on_host(CPU, one) == 2 * one.total


def test_the_host_must_hold_all_ranks() -> None:
    estimate = estimate_memory(CPU)
    machine = Machine(cpu_cores=2, memory_total_bytes=1 << 33, memory_available_bytes=2 * estimate.total)
    assert not shortages(CPU, machine, estimate)
    (short,) = shortages(CPU, msgspec.structs.replace(machine, memory_available_bytes=2 * estimate.total - 1), estimate)
    assert (short.where, short.wanted_bytes) == ("this machine", 2 * estimate.total)
    assert not shortages(CPU, msgspec.structs.replace(machine, memory_available_bytes=None), estimate)


def test_each_gpu_must_hold_its_share() -> None:
    estimate = estimate_memory(CPU)
    gpus = tuple(
        Gpu(index=index, uuid=f"GPU-{index}", name="G", memory_total_bytes=8 << 30, memory_used_bytes=used)
        for index, used in enumerate((0, (8 << 30) - 5, None))
    )
    machine = Machine(cpu_cores=2, memory_total_bytes=1 << 33, gpus=gpus)
    config = msgspec.structs.replace(CPU, platform="cuda", devices=3, device_ids=("GPU-0", "GPU-1", "GPU-2"))
    assert free_memory(config, machine) == [("GPU 0", 8 << 30), ("GPU 1", 5)]
    assert [short.where for short in shortages(config, machine, estimate)] == ["GPU 1"]
    # Each node takes its idle ones.
    on_nodes = msgspec.structs.replace(config, device_ids=(), devices=6, nodes=2, launcher="join")
    assert free_memory(on_nodes, machine) == free_memory(config, machine)
    assert free_memory(msgspec.structs.replace(on_nodes, devices=4), machine) == [("GPU 0", 8 << 30)]


def test_what_does_not_fit_may_in_parts() -> None:
    config = msgspec.structs.replace(CPU, model="resnet18", devices=1, global_batch_size=48)
    whole, thirds = estimate_memory(config), estimate_memory(msgspec.structs.replace(config, accumulate=3))
    assert thirds.activations == pytest.approx(whole.activations / 3, abs=1)
    machine = Machine(cpu_cores=2, memory_total_bytes=1 << 33, memory_available_bytes=thirds.total)
    assert memory_warning(config, machine, whole).endswith(": try accumulate = 3")
    halves = msgspec.structs.replace(config, accumulate=2)
    assert memory_warning(halves, machine, estimate_memory(halves)).endswith(": try accumulate = 3")
    # Weights that do not fit are no smaller in parts; what takes a batch as a whole is not told to take parts.
    tight = msgspec.structs.replace(machine, memory_available_bytes=whole.parameters)
    assert memory_warning(config, tight, whole).endswith("it may not fit")
    assert parts_that_fit(msgspec.structs.replace(config, backend="mxnet-gluon"), machine, whole) is None


def test_a_node_must_hold_its_own_devices() -> None:
    on_nodes = msgspec.structs.replace(CPU, devices=4, nodes=2, launcher="join")
    estimate = estimate_memory(on_nodes)
    assert on_host(on_nodes, estimate) == 2 * estimate.total
    machine = Machine(cpu_cores=2, memory_total_bytes=1 << 33, memory_available_bytes=1 << 20)
    warning = f"about {format_bytes(2 * estimate.total)} for each node's ranks, but 1.00 MiB free on this machine"
    assert memory_warning(on_nodes, machine, estimate).startswith(warning)
    assert data_copies(on_nodes) == 2
    assert data_copies(msgspec.structs.replace(on_nodes, backend="jax-pmap")) == 3


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("backend", "platform", "copies"),
    [
        ("torch-ddp", "cpu", 2),
        ("torch-ddp", "cuda", 2),
        ("keras-torch", "cpu", 2),
        ("torch-dp", "cuda", 1),
        ("jax-pmap", "cpu", 3),
        ("jax-sharding", "cuda", 1),
    ],
)
def test_data_that_do_not_fit_into_the_host_are_a_problem(
    tmp_path: Path, backend: str, platform: str, copies: int
) -> None:
    name = write_npz(tmp_path / "mine.npz", make_arrays((64, 64, 3), dtype="uint8", train=3000, test=48))
    config = msgspec.structs.replace(CPU, dataset=name, backend=backend, platform=platform)
    wanted = 3048 * 64 * 64 * 3 * copies
    assert data_copies(config) == copies
    machine = Machine(cpu_cores=2, memory_total_bytes=1 << 33, memory_available_bytes=wanted)
    assert not check_data_fits(config, machine)
    assert not check_data_fits(config, msgspec.structs.replace(machine, memory_available_bytes=None))
    (problem,) = check_data_fits(config, msgspec.structs.replace(machine, memory_available_bytes=wanted - 1))
    assert problem.key == "dataset"
    assert f"{name} takes 0.03 GiB of memory" in problem.message
    assert ("0.07 GiB in all" in problem.message) == (copies == 2)
    floats = write_npz(tmp_path / "floats.npz", make_arrays((8, 8), dtype="float64", train=100, test=20))
    assert estimate_memory(msgspec.structs.replace(config, dataset=floats)).data == 120 * 64 * 4
