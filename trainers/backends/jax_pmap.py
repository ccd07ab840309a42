"""JAX pmap: the program of one device, run on all of them at once, with the collectives written out.

Every array has a leading axis with one entry per device: a replica of the state each, a part of the global batch
each. The step averages the gradients over the devices with `lax.pmean`, so all replicas make the same update. One
process owns all devices: several GPUs, or virtual devices of the CPU (JAX_NUM_CPU_DEVICES=N). On several machines each
has a process, and the axis has the devices of all. Replaces

    python main.py

JAX keeps pmap in maintenance, implemented over `jit` and `shard_map`; `jax-sharding` is the way that it recommends.

With `accumulate` a device takes its part in parts, one after the other, and averages the sum of their gradients.

BatchNorm normalizes with the statistics of the device's own part, as DDP does. Its running statistics are averaged
over the devices before each evaluation: training does not read them. Replicas are compared without them.

Source: https://github.com/google/flax/blob/main/examples/imagenet/train.py
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import optax
from jax import Array, lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.accumulate import Order, accumulate, take
from tuiapp.trainers.frameworks.jax.devices import (
    Batch,
    TestSet,
    TrainingSet,
    as_batch,
    broadcast_from_first,
    donated,
    evaluate,
    fill,
    named_leaves,
    of_step,
    own_part,
    pick_devices,
    predictor,
    put,
    report_sharding,
    steps_in_flight,
    sum_up,
)
from tuiapp.trainers.frameworks.jax.losses import read, unscaled
from tuiapp.trainers.frameworks.jax.profile import step_memory
from tuiapp.trainers.frameworks.jax.replicas import replica_checksums
from tuiapp.trainers.frameworks.jax.state import TrainState, begin, create, gradients_of, restore, snapshot
from tuiapp.trainers.rank.checkpoints import Checkpoints, Saved
from tuiapp.trainers.rank.loop import Compare, Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import datasets


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Trains on all devices, from the first step, or the one after a checkpoint, to the last."""
    config = plan.config
    devices, local = pick_devices(plan, report), plan.devices_of(jax.process_index())
    split = NamedSharding(Mesh(np.array(devices), ("batch",)), P("batch"))
    arrays = datasets.open_planned(plan)
    saved = checkpoints.resumed
    done = saved.step if saved else 0
    # What fits lives on every device whole: a step then indexes, and copies no image from the host.
    training_set = TrainingSet(plan, arrays, split, lambda tree: replicate(tree, split), done, axis=local)
    test_set = TestSet(arrays, plan, config.devices, split, axis=local)
    del arrays
    state = create(plan)
    if saved:
        state = put_back(state, saved, split)
    else:
        state = replicate(broadcast_from_first(begin(state, plan, report)), split)

    mapped_step = jax.pmap(
        partial(make_step, config, plan.data.classes), "batch", devices=devices, donate_argnums=donated(config)
    )
    # Compiled ahead, so that the first step takes no longer than the others.
    report.phase("compiling")
    example = training_set.example()
    train_step = mapped_step.lower(state, *example).compile()
    report.step_memory = step_memory(train_step)
    # A step's batch never leaves it: the first is taken once more, in the same way, to report its sharding.
    last_batch = partial(take_last_batch, plan.data.classes)
    mapped_batch = jax.pmap(last_batch, "batch", devices=devices).lower(state, *example[:3]).compile()
    del example
    checksums_of = replica_checksums(plan, state.params, split)

    in_flight = {**steps_in_flight(config), "loss_scale": lambda: read(state.loss_scale)}
    for work in training(plan, report, checkpoints, place=training_set.place, **in_flight):
        match work:
            case Step():
                # Every argument has the leading axis: one without it would have to be spread at each step.
                state, losses, norms = train_step(state, *work.rows)
                work.done(losses, norms)
                if work.is_first:
                    report_sharding(report, state.params, state.opt_state, *mapped_batch(state, *work.rows[:3]))
            case Compare():
                work.done(checksums_of(state.params))
            case Evaluate():
                state = average_statistics(state, split)
                shown = state.averaged()
                sums = evaluate(eval_step, shown, test_set, plan.data.classes, state.losses)
                work.done(sums, partial(predictor, shown, own_replica))
            case Save():
                work.done(*take_snapshot(state))
            case Export():
                checkpoints.export(take_snapshot(state)[0])
    jax.distributed.shutdown()


def take_last_batch(classes: int, state: TrainState, x: Array, y: Array, order: Order) -> Batch:
    """Returns one device's part of the batch that its state was updated by last, as of `take`."""
    return take(x, y, order, state.step - 1, classes)


def make_step(
    config: RunConfig, classes: int, state: TrainState, x: Array, y: Array, order: Order, rates: Array
) -> tuple[TrainState, Array, Array | None]:
    """Returns one device's part of an update, without the leading axis of devices.

    Args:
        config: In how many parts a device takes its batch, and whether gradients are clipped.
        classes: Of the labels.
        state: This device's replica.
        x: All images, [N, H, W, C], or those of its part of the batch.
        y: Their labels, int32 [N].
        order: The numbers of its examples in each of the epoch's steps, int32 [steps, local batch], with what is drawn
            for them; None if they are all.
        rates: The epoch's learning rates, float32 [steps].

    Returns:
        The state after the update; the mean loss over this device's images before it, float32 []; and the averaged
        gradients' norm, float32 [], if they are clipped.
    """
    x, y = take(x, y, order, state.step, classes)
    # Dropout draws differently at every step and on every device.
    dropout = jax.random.fold_in(jax.random.fold_in(jax.random.key(state.seed), state.step), lax.axis_index("batch"))

    of_part = gradients_of(state, dropout, config)
    gradients, losses, batch_stats = accumulate(of_part, state.batch_stats, (x, y), config.accumulate)
    gradients = unscaled(lax.pmean(gradients, "batch"), state.loss_scale)
    norm = optax.tree.norm(gradients) if config.gradient_clip else None
    state = state.with_rate(of_step(rates, state.step))
    state = state.updated(gradients, batch_stats).averaging(config)
    return state, losses.mean(), norm


def take_snapshot(state: TrainState) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Copies one replica, with the mean of all replicas' BatchNorm statistics, and each replica's own."""
    model, remaining = snapshot(own_replica(state))
    stacked = named_leaves({"batch_stats": multihost_utils.process_allgather(state.batch_stats, tiled=True)})
    means = {name: statistics.mean(axis=0, dtype=statistics.dtype) for name, statistics in stacked.items()}
    return {**model, **means}, {**remaining, **{f"ranks.{name}": statistics for name, statistics in stacked.items()}}


def own_replica(state: TrainState) -> TrainState:
    """Returns the replica on this process's first device."""
    replica: TrainState = jax.tree.map(lambda leaf: leaf.addressable_data(0)[0], state)
    return replica


def replicate(tree: Any, split: NamedSharding) -> Any:
    """Returns a copy of each array for each device, along a leading axis."""
    local = split.mesh.local_mesh.size
    return put(jax.tree.map(lambda leaf: np.broadcast_to(leaf, (local, *np.shape(leaf))), tree), split)


def put_back(state: TrainState, saved: Saved, split: NamedSharding) -> TrainState:
    """Restores replicas; on another number of devices each starts from the mean of their statistics."""
    state = replicate(restore(state, saved), split)
    stacked = {name.removeprefix("ranks."): array for name, array in saved.state.items() if name.startswith("ranks.")}
    if stacked and len(next(iter(stacked.values()))) == split.mesh.size:
        filled = fill({"batch_stats": state.batch_stats}, stacked)["batch_stats"]
        state = state.replace(batch_stats=put(jax.tree.map(lambda leaf: own_part(leaf, split), filled), split))
    return state


def average_statistics(state: TrainState, split: NamedSharding) -> TrainState:
    """Gives every replica the mean of all replicas' BatchNorm statistics."""
    if not state.batch_stats:
        # A model without BatchNorm: pmap takes no empty tree.
        return state
    assert isinstance(split.mesh, Mesh)
    # pmap returns this process's part.
    means = mean_over_devices(state.batch_stats)
    averaged = multihost_utils.host_local_array_to_global_array(means, split.mesh, split.spec)
    return state.replace(batch_stats=averaged)


@partial(jax.pmap, axis_name="batch")
def mean_over_devices(tree: object) -> object:
    """Returns the mean of a tree's arrays over the devices, on each of them."""
    return lax.pmean(tree, "batch")


@partial(jax.pmap, axis_name="batch")
def eval_step(state: TrainState, x: Array, y: Array, numbers: Array) -> Array:
    """Returns sums of a batch on one device, float32 [n]: see `sum_up`."""
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    x, y = as_batch(x, y)
    logits = state.apply_fn(variables, x, train=False)
    return sum_up(state.losses, logits, y, numbers)
