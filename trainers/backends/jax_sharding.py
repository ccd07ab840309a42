"""JAX with sharded arrays: a program written as for one device, compiled for all of them.

Each global batch is split over the mesh's axis "batch"; parameters and optimizer state are replicated on every device,
or, with `mesh`, split over the mesh's axis "model" by rules for their names. From these shardings `jit` inserts the
all-reduce of the gradients, and the gathering of what a device lacks. One process owns all devices: several GPUs, or
virtual devices of the CPU (JAX_NUM_CPU_DEVICES=N). On several machines each has a process, and the mesh has the devices
of all. Replaces

    python train.py

With `accumulate` a step takes its batch in parts, one after the other, each split over the devices.

BatchNorm normalizes with the statistics of the whole global batch, or part: the program means the batch, wherever it
is. DDP and pmap normalize each device's part separately.

Source: https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import jax
import optax
from jax import Array

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.jax.accumulate import Order, accumulate, take
from tuiapp.trainers.frameworks.jax.devices import (
    Batch,
    TestSet,
    TrainingSet,
    as_batch,
    broadcast_from_first,
    by_name,
    donated,
    evaluate,
    of_step,
    predictor,
    put,
    report_sharding,
    steps_in_flight,
    sum_up,
)
from tuiapp.trainers.frameworks.jax.losses import read, unscaled
from tuiapp.trainers.frameworks.jax.mesh import DeviceMesh
from tuiapp.trainers.frameworks.jax.profile import step_memory
from tuiapp.trainers.frameworks.jax.replicas import replica_checksums
from tuiapp.trainers.frameworks.jax.state import TrainState, begin, create, gradients_of, model_of, restore, snapshot
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.loop import Compare, Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import datasets

Updated: TypeAlias = tuple[TrainState, Array, Array | None]


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Trains on all devices, from the first step, or the one after a checkpoint, to the last."""
    config = plan.config
    mesh = DeviceMesh(plan, report)
    split, replicated = mesh.split, mesh.whole
    arrays = datasets.open_planned(plan)
    done = checkpoints.resumed.step if checkpoints.resumed else 0
    # What fits lives on every device whole: a step then indexes, and copies no image from the host.
    training_set = TrainingSet(plan, arrays, split, lambda tree: put(tree, replicated), done)
    test_set = TestSet(arrays, plan, mesh.batch, split)
    del arrays
    state = create(plan)
    state = restore(state, checkpoints.resumed) if checkpoints.resumed else begin(state, plan, report)
    layout = shardings(state, mesh)
    state = mesh.put(broadcast_from_first(state), layout)

    def take_batch(done: int | Array, x: Array, y: Array, order: Order) -> Batch:
        batch: Batch = jax.lax.with_sharding_constraint(take(x, y, order, done, plan.data.classes), split)
        return batch

    def take_last_batch(state: TrainState, x: Array, y: Array, order: Order) -> Batch:
        return take_batch(state.step - 1, x, y, order)

    def step_on_rows(state: TrainState, x: Array, y: Array, order: Order, rates: Array) -> Updated:
        # One compiled call a step: the batch is taken, and split over the devices, in it.
        return make_step(state, *take_batch(state.step, x, y, order), of_step(rates, state.step), config, mesh)

    jitted_step = jax.jit(step_on_rows, donate_argnums=donated(config), out_shardings=(layout, mesh.each, replicated))
    # Compiled ahead, so that the first step takes no longer than the others.
    report.phase("compiling")
    example = training_set.example()
    train_step = jitted_step.lower(state, *example).compile()
    report.step_memory = step_memory(train_step)
    # A step's batch never leaves it: the first is taken once more, in the same way, to report its sharding.
    taken_batch = jax.jit(take_last_batch).lower(state, *example[:3]).compile()
    del example
    checksums_of = replica_checksums(plan, model_of(state), model_of(layout))

    eval_step = jax.jit(sum_up_batch, out_shardings=replicated)
    in_flight = {**steps_in_flight(config), "loss_scale": lambda: read(state.loss_scale)}
    for work in training(plan, report, checkpoints, place=training_set.place, **in_flight):
        match work:
            case Step():
                state, losses, norm = train_step(state, *work.rows)
                work.done(losses, norm)
                if work.is_first:
                    report_sharding(report, state.params, state.opt_state, *taken_batch(state, *work.rows[:3]))
                    weights, optimizer_state, average = by_name(state.params), state.opt_state, state.average
                    mesh.report_parts(report, weights, optimizer_state, average, train_step.as_text)
            case Compare():
                work.done(checksums_of(model_of(state)), mesh.parts_of(model_of(layout)))
            case Evaluate():
                shown = state.averaged()
                sums = evaluate(eval_step, shown, test_set, plan.data.classes, state.losses)
                work.done(sums, partial(predictor, shown))
            case Save():
                work.done(*snapshot(state))
            case Export():
                checkpoints.export(snapshot(state)[0])
    jax.distributed.shutdown()


def shardings(state: TrainState, mesh: DeviceMesh) -> TrainState:
    """Returns how a state lies on the devices: its optimizer's part of each weight as the weight."""
    replicated: TrainState = jax.tree.map(lambda leaf: mesh.whole, state)
    return replicated.replace(
        params=mesh.of_weights(state.params),
        average=mesh.of_weights(state.average),
        batch_stats=mesh.of_weights(state.batch_stats),
        opt_state=mesh.as_weights(state.opt_state, state.params),
    )


def make_step(state: TrainState, x: Array, y: Array, rate: Array, config: RunConfig, mesh: DeviceMesh) -> Updated:
    """Makes one update.

    Args:
        state: Before it.
        x: Images, float32 [global batch, H, W, C].
        y: Labels, int32 [global batch], or of mixtures float32 [global batch, classes].
        rate: The learning rate, float32 [].
        config: In how many parts each device takes its part of the batch, and whether gradients are clipped.
        mesh: The devices that share the batch.

    Returns:
        The state after it; each device's mean loss over its part of the batch, before it: float32 [devices]; and the
        gradients' norm, float32 [], if they are clipped.
    """
    dropout = jax.random.fold_in(jax.random.key(state.seed), state.step)

    of_part = gradients_of(state, dropout, config)
    parts = config.accumulate, mesh.batch
    gradients, losses, batch_stats = accumulate(of_part, state.batch_stats, (x, y), *parts)
    gradients = unscaled(gradients, state.loss_scale)
    state = state.with_rate(rate).updated(gradients, batch_stats).averaging(config)
    norm = optax.tree.norm(gradients) if config.gradient_clip else None
    return state, mesh.of_devices(losses), norm


def sum_up_batch(state: TrainState, x: Array, y: Array, numbers: Array) -> Array:
    """Returns sums of a batch, float32 [n]: see `sum_up`."""
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    x, y = as_batch(x, y)
    logits = state.apply_fn(variables, x, train=False)
    return sum_up(state.losses, logits, y, numbers)
