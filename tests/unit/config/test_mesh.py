"""The mesh of a configuration and the batch of each device: how weights and examples are split."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.config.test_placement import machine
from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.memory import estimate_memory, split_weights
from tuiapp.trainers.config.mesh import OUTPUTS, TRANSFORMER, Mesh, Split, mesh_of, parse_mesh, split_of
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.relevance import check_file, drop_inapplicable, with_changes
from tuiapp.trainers.config.run_config import RunConfig, build_config, parse_toml, to_mapping, to_toml

CONFIG = RunConfig(backend="jax-sharding", platform="cpu", devices=4, model="mlp")


def test_axes_in_any_order_and_one_alone() -> None:
    assert parse_mesh("batch=2,model=3") == parse_mesh(" model = 3 , batch=2") == Mesh(2, 3)
    assert parse_mesh("model=4") == Mesh(1, 4)
    assert parse_mesh("batch=4") == Mesh(4, 1)
    assert parse_mesh("") is None
    assert mesh_of("", 6) == Mesh(6, 1)
    assert str(Mesh(2, 3)) == "batch=2,model=3"


@pytest.mark.parametrize(
    "text", ["2", "data=2", "batch=2,batch=2", "batch=0", "batch=-1", "model=2.0", "batch=2;model=2", ","]
)
def test_what_is_no_mesh(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"mesh: .* is no mesh: give .*'batch=2,model=2'; the axes are batch and model"
    ):
        build_config({"backend": "jax-sharding", "mesh": text})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"devices": 3},
            "mesh: batch=2,model=2 is 4 devices, but devices says 3: batch=3,model=1 or batch=1,model=3 would be",
        ),
        ({"nodes": 3, "devices": 4, "launcher": "join"}, "devices: 4 cannot be split evenly over 3 nodes"),
        (
            {"global_batch_size": 49},
            "49 cannot be split evenly over the 2 devices of mesh batch=2,model=2 along batch; 48 or 50",
        ),
        ({"accumulate": 5}, "24 examples of each device make no 5 equal parts"),
        ({"backend": "torch-ddp"}, "mesh: torch-ddp has no mesh: leave it empty, or use jax-sharding or keras-jax"),
    ],
)
def test_what_does_not_fit_it(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_config({"backend": "jax-sharding", "mesh": "batch=2,model=2", **values})
    assert words in str(raised.value)


def test_the_batch_is_split_over_its_own_axis_alone() -> None:
    """And the devices that share examples report their parts of them."""
    plan = make_plan(msgspec.structs.replace(CONFIG, mesh="batch=2,model=2", global_batch_size=50))
    assert (plan.batch_of(0), plan.examples_of(0), plan.world_size) == (25, 12.5, 4)
    build_config({"backend": "jax-sharding", "devices": 4, "mesh": "model=4", "global_batch_size": 49})


@pytest.mark.parametrize(
    ("name", "shape", "split"),
    [
        ("fc1.kernel", (784, 256), Split(1)),
        ("fc1/bias", (256,), Split(0)),
        ("conv1/kernel", (3, 3, 1, 32), Split(3)),
        ("bn1/moving_variance", (32,), Split(0)),
        ("out.kernel", (128, 10), Split(None, "10 is not divisible by 4")),
        ("seed_generator/seed_generator_state", (4,), Split(None)),
        ("scale", (), Split(None)),
    ],
)
def test_a_layers_outputs_are_split(name: str, shape: tuple[int, ...], split: Split) -> None:
    assert split_of(name, shape, OUTPUTS, 4) == split
    assert split_of(name, shape, OUTPUTS, 1) == Split(None)


@pytest.mark.parametrize(
    ("layer", "norm", "embedding"),
    [("block1.{}.", "norm.scale", "tokens.embedding"), ("block1_{}/", "norm/gamma", "tokens/embeddings")],
    ids=["flax", "keras"],
)
def test_of_a_transformer_what_is_added_to_the_stream_is_split_by_inputs(layer: str, norm: str, embedding: str) -> None:
    kernels = {
        name: split_of(f"{layer.format(name)}kernel", (128, 128), TRANSFORMER, 2).axis
        for name in ("qkv", "out", "fc1", "fc2")
    }
    assert kernels == {"qkv": 1, "out": 0, "fc1": 1, "fc2": 0}
    assert (
        split_of(f"{layer.format('out')}bias", (128,), TRANSFORMER, 2)
        == split_of(norm, (128,), TRANSFORMER, 2)
        == Split(None)
    )
    assert split_of(embedding, (256, 128), TRANSFORMER, 2) == Split(1)


def test_the_first_rule_that_fits_counts_and_must_fit() -> None:
    assert split_of("a.kernel", (4, 4), {"^a": 0, "kernel": 1}, 2) == Split(0)
    assert split_of("b.bias", (4,), {"^a": 0}, 2) == Split(None)
    with pytest.raises(ValueError, match=r"a rule splits axis 2 of a.kernel, whose shape is \[4, 4\]"):
        split_of("a.kernel", (4, 4), {"a": 2}, 2)


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("model", list(MODELS))
def test_the_plan_knows_what_is_split(model: str, parts: int) -> None:
    """All but for the few outputs of a last layer that do not divide, and what the rules leave whole."""
    data = "shakespeare" if model == "gpt-small" else "digits"
    config = msgspec.structs.replace(CONFIG, model=model, dataset=data, devices=parts)
    whole, split = (estimate_memory(msgspec.structs.replace(config, mesh=mesh)) for mesh in ("", f"model={parts}"))
    assert split.parameters == split.gradients == split.optimizer / 2
    assert split.parameters == pytest.approx(whole.parameters / parts, rel=0.16)
    assert split.parameters >= whole.parameters / parts
    # All of the batch on each device, of a transformer in parts. Where a device has a part of it, XLA keeps BatchNorm's
    # inputs twice.
    facts = find_dataset(data)
    twice = 4 * MODELS[model].size(facts.input_shape, facts.classes).normalized * config.global_batch_size // parts
    kept = (1 if model == "gpt-small" else parts) * (whole.activations - twice)
    assert split.activations == pytest.approx(kept, abs=parts)
    found = split_weights(msgspec.structs.replace(config, mesh=f"model={parts}"), facts)
    assert {why for *_, why in found if why} == (
        {"10 is not divisible by 4"} if parts == 4 and model != "gpt-small" else set()
    )


def changed(base: RunConfig, **changes: Any) -> RunConfig:
    return with_changes({**to_mapping(base)}, changes)


@pytest.mark.parametrize(
    ("keys", "gpus", "batch"),
    [
        ({}, 0, 128), ({}, 3, 192), ({"devices": 2}, 4, 128), ({"device_ids": ("0", "2", "3")}, 4, 192),
        ({"backend": "jax-sharding", "mesh": "batch=2,model=2"}, 4, 128),
        ({"backend": "keras-jax", "devices": 1}, 0, 64),
        ({"launcher": "slurm", "nodes": 2, "devices": 6, "platform": "cuda"}, 0, 384),
        ({"launcher": "slurm", "devices_per_node": "4+2", "platform": "cuda"}, 0, 384),
        ({"shares": "3:1", "devices": 2}, 2, 128),
    ],
)  # fmt: skip
def test_the_placed_configuration_has_the_global_batch(keys: dict[str, Any], gpus: int, batch: int) -> None:
    placed = place(build_config({"per_device_batch_size": 64, **keys}), machine(gpus))
    assert (placed.global_batch_size, placed.per_device_batch_size) == (batch, 0)
    # What is written is read back as the same run.
    assert place(parse_toml(to_toml(drop_inapplicable(placed)), "run.toml")[0], machine(gpus)) == placed


def test_the_later_of_the_two_counts() -> None:
    given = changed(RunConfig(global_batch_size=256), per_device_batch_size=64)
    assert (given.global_batch_size, given.per_device_batch_size) == (48, 64)
    given = changed(given, global_batch_size=96)
    assert (given.global_batch_size, given.per_device_batch_size) == (96, 0)
    assert changed(given, devices=2) == RunConfig(global_batch_size=96, devices=2)


def test_both_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"global_batch_size: 96 would have no effect with per_device_batch_size 64"):
        changed(RunConfig(), per_device_batch_size=64, global_batch_size=96)
    config, _ = parse_toml("schema = 1\nper_device_batch_size = 64\nglobal_batch_size = 96\n", "preset.toml")
    assert [problem.key for problem in check_file(config)] == ["global_batch_size"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"per_device_batch_size": 800, "devices": 2}, "1,600 is more than the 1,437 training examples of digits."),
        ({"per_device_batch_size": 9, "accumulate": 2, "devices": 2}, ""),
        (
            {"per_device_batch_size": 1 << 20, "devices": 4, "dataset": "npz:/nothing.npz"},
            "4,194,304 examples a step are too many: use a global batch of at most 1,048,576.",
        ),
    ],
)
def test_what_it_comes_to_is_checked(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(keys)
    (problem,) = caught.value.problems
    assert problem.key == ("per_device_batch_size" if says else "accumulate")
    assert says in problem.message
