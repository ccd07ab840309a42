"""Keys set together at random: they are refused with words, or make a plan that ranks can carry out."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import check_facts, place
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.relevance import check_inapplicable, drop_inapplicable
from tuiapp.trainers.config.run_config import OPTIONS, build_config, parse_toml, to_toml
from tuiapp.trainers.rank.schedules import learning_rate

BUILTIN = [name for name, backend in BACKENDS.items() if backend.builtin and backend.name != "mxnet-gluon"]
"""Whose packages are installed here: those of MXNet are in an interpreter of its own."""
GPUS = tuple(Gpu(index=index, uuid=f"GPU-{index:02}aa", name="NVIDIA H200") for index in range(4))
MACHINES = [
    Machine(cpu_cores=8, memory_total_bytes=1 << 36, gpus=gpus, gpu_problem="" if gpus else "no NVIDIA driver here")
    for gpus in ((), GPUS)
]
VALUES: dict[str, list[Any]] = {
    "model": ["mlp", "convnet", "net", "transformer", "py:/nowhere/own.py:net"],
    "dataset": ["digits", "shakespeare"],
    "context": [8, 64],
    "freeze": ["fc1*", "*"],
    "normalize": ["data", "0.3 / 0.4", "0.3, 0.2 / 0.4", "of the moon"],
    "augment": ["flip", "crop-flip", "mixup"],
    "mixup_alpha": [0.2, 1.0],
    "platform": ["cpu", "cuda"],
    "devices": [1, 2, 3, 4, 6],
    "device_ids": [("0",), ("0", "1"), ("9",)],
    "launcher": ["join", "slurm"],
    "nodes": [2, 3],
    "devices_per_node": ["1+1", "3+1", "one"],
    "network": ["lo"],
    "mesh": ["batch=2,model=2", "model=3", "batch=4", "model"],
    "global_batch_size": [1, 7, 24, 48, 96, 1 << 20],
    "shares": ["measured", "3:1", "1:1", "5:1:2", "much"],
    "accumulate": [2, 3, 24, 1 << 20],
    "optimizer": ["sgd", "adamw", "adadelta"],
    "learning_rate": [1e-9, 100.0],
    "learning_rate_for": [1, 96, 1 << 20],
    "learning_rate_scaling": ["sqrt"],
    "momentum": [0.0, 0.5],
    "nesterov": [True],
    "weight_decay": [0.1],
    "gradient_clip": [1.0],
    "label_smoothing": [0.1, 0.999],
    "schedule": ["cosine", "linear", "one-cycle", "step"],
    "warmup_steps": [1, 3, 10_000_000],
    "ema": [0.9],
    "precision": ["bfloat16", "float16", "tf32"],
    "sync_batch_norm": [True],
    "compile": [True],
    "cuda_graphs": [True],
    "epochs": [1, 1_000_000],
    "max_steps": [1, 2, 13],
    "eval_every": [0, 3],
    "early_stop": [2],
    "checkpoint_every": [0, 2],
    "best": ["loss", "highest:margin"],
    "nan_policy": ["stop"],
    "check_replicas": [False],
}
"""Values that are each allowed, or nearly, beside the defaults."""

SOME = st.lists(st.sampled_from(sorted(VALUES)), max_size=8, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: st.sampled_from(VALUES[key]) for key in keys})
)


def planned(values: dict[str, Any], machine: Machine) -> None:
    """Plans a run as a launch does, and checks that the ranks can go by the plan; raises ConfigError."""
    config = build_config(values, checks=[lambda config: check_inapplicable(config, values)])
    assert parse_toml(to_toml(config), "run.toml")[0] == config
    placed = drop_inapplicable(place(config, machine))
    data = find_dataset(placed.dataset, placed.context)
    assert check_facts(placed, data) == []
    plan = make_plan(placed, data)
    # What is written is read again as it is.
    assert build_config({key: getattr(placed, key) for key in OPTIONS}) == placed
    assert plan.steps_per_epoch >= 1 <= plan.total_steps
    along = range(0, placed.devices, plan.mesh.model)
    batches = [plan.batch_of(rank) for rank in along]
    assert sum(batches) == placed.global_batch_size
    if placed.shares != "measured":
        assert all(batch and batch % placed.accumulate == 0 for batch in batches)
    assert sum(map(len, map(plan.ranks_of, range(placed.nodes)))) == plan.processes == len(plan.ranks)
    for step in (1, 2, plan.total_steps // 2 + 1, plan.total_steps):
        rate = learning_rate(plan, step)
        assert math.isfinite(rate)
        assert rate >= 0


@given(backend=st.sampled_from(BUILTIN), values=SOME, machine=st.sampled_from(MACHINES))
def test_keys_together_are_refused_with_words_or_make_a_plan(
    backend: str, values: dict[str, Any], machine: Machine
) -> None:
    try:
        planned({"backend": backend, **values}, machine)
    except ConfigError as error:
        for problem in error.problems:
            assert problem.keys <= {*OPTIONS, "platform"}
            assert problem.message.endswith("."), problem
