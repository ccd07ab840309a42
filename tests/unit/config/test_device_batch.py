"""The batch of each device as a key beside the global one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.test_placement import machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.relevance import check_file, drop_inapplicable, with_changes
from tuiapp.trainers.config.run_config import RunConfig, build_config, parse_toml, to_mapping, to_toml


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
