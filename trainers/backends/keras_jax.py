"""Keras 3 on JAX with sharded arrays: a program written as for one device, compiled for all of them.

A Keras model and a Keras optimizer are made into pure functions of their variables' values with `stateless_call` and
`stateless_apply`, and `jit` compiles the two into one step. Each global batch is split over the mesh's axis "batch";
all variables are replicated on every device, or, with `mesh`, split over the mesh's axis "model" by rules for their
paths. From these shardings `jit` inserts the all-reduce of the gradients, and the gathering of what a device
lacks. One process owns all devices: several GPUs, or virtual devices of the CPU. On several machines each has a
process, and the mesh has the devices of all. Replaces

    KERAS_BACKEND=jax python train.py

With `accumulate` a step takes its batch in parts, one after the other, each split over the devices.

BatchNorm normalizes with the statistics of the whole global batch, or part, as it does with `jax-sharding`.

Source: https://keras.io/guides/distributed_training_with_jax/
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import keras
from jax import Array

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.frameworks.jax.accumulate import Order, accumulate, take
from tuiapp.trainers.frameworks.jax.devices import (
    Batch,
    TestSet,
    TrainingSet,
    as_inputs,
    broadcast_from_first,
    donated,
    evaluate,
    of_step,
    predictor,
    put,
    report_sharding,
    steps_in_flight,
    sum_up,
    to_host,
)
from tuiapp.trainers.frameworks.jax.losses import (
    LossScale,
    first_average,
    first_loss_scale,
    losses_of,
    next_average,
    read,
    restored,
    scaled,
    skip_overflow,
    to_save,
    unscaled,
)
from tuiapp.trainers.frameworks.jax.mesh import DeviceMesh
from tuiapp.trainers.frameworks.jax.profile import step_memory
from tuiapp.trainers.frameworks.jax.replicas import replica_checksums
from tuiapp.trainers.frameworks.keras import state as keras_state
from tuiapp.trainers.frameworks.keras.state import build_optimizer
from tuiapp.trainers.rank.checkpoints import TRAINED, Checkpoints, Saved
from tuiapp.trainers.rank.loop import Compare, Evaluate, Export, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.sources import datasets


class State(NamedTuple):
    trainable: list[Array]
    non_trainable: list[Array]
    """BatchNorm's running statistics, and Dropout's random state."""
    optimizer: list[Array]
    average: list[Array]
    """The averages of `trainable`, which are evaluated; empty without `ema`."""

    loss_scale: LossScale | None
    """The loss scale in float16."""

    def averaged(self) -> State:
        """Returns the state to evaluate: with the average as weights, if there is one."""
        return self._replace(trainable=self.average) if self.average else self


Updated: TypeAlias = tuple[State, Array, Array | None]


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
    pure = Training(plan, mesh)
    if checkpoints.resumed:
        pure.restore(checkpoints.resumed)
    else:
        keras_state.begin(pure.model, pure.frozen, plan, report)
    first = pure.state()
    layout = pure.shardings(first)
    state = mesh.put(broadcast_from_first(first), layout)
    # The variables' own values, whole on one device, are needed no more.
    for value in (*first.trainable, *first.non_trainable, *first.optimizer, *first.average):
        value.delete()
    del first

    def take_batch(done: Array, x: Array, y: Array, order: Order) -> Batch:
        batch: Batch = jax.lax.with_sharding_constraint(take(x, y, order, done, plan.data.classes), split)
        return batch

    def take_last_batch(state: State, x: Array, y: Array, order: Order) -> Batch:
        return take_batch(pure.steps_made(state) - 1, x, y, order)

    def step_on_rows(state: State, x: Array, y: Array, order: Order, rates: Array) -> Updated:
        # One compiled call a step: the batch is taken, and split over the devices, in it.
        done = pure.steps_made(state)
        return pure.step(state, *take_batch(done, x, y, order), of_step(rates, done))

    jitted_step = jax.jit(step_on_rows, donate_argnums=donated(config), out_shardings=(layout, mesh.each, replicated))
    eval_step, logits_of = jax.jit(pure.eval_step, out_shardings=replicated), jax.jit(pure.logits)
    # Compiled ahead, so that the first step takes no longer than the others.
    report.phase("compiling")
    example = training_set.example()
    train_step = jitted_step.lower(state, *example).compile()
    report.step_memory = step_memory(train_step)
    # A step's batch never leaves it: the first is taken once more, in the same way, to report its sharding.
    taken_batch = jax.jit(take_last_batch).lower(state, *example[:3]).compile()
    del example
    checksums_of = replica_checksums(plan, pure.named(state), pure.named(layout))

    in_flight = {**steps_in_flight(config), "loss_scale": lambda: read(state.loss_scale)}
    for work in training(plan, report, checkpoints, place=training_set.place, **in_flight):
        match work:
            case Step():
                state, losses, norm = train_step(state, *work.rows)
                work.done(losses, norm)
                if work.is_first:
                    report_sharding(report, *pure.trees(state), *taken_batch(state, *work.rows[:3]))
                    named = pure.named(state)
                    weights = {path: named[path] for path in (*pure.trees(state)[0], *sorted(pure.frozen))}
                    mesh.report_parts(report, weights, state.optimizer, state.average, train_step.as_text)
            case Compare():
                work.done(checksums_of(pure.named(state)), mesh.parts_of(pure.named(layout)))
            case Evaluate():
                shown = state.averaged()
                sums = evaluate(eval_step, shown, test_set, plan.data.classes, pure.losses)
                work.done(sums, partial(predictor, shown, logits_of=logits_of))
            case Save():
                work.done(*pure.snapshot(state))
            case Export():
                pure.write_back(state.averaged())
                if best := checkpoints.best_model():
                    keras_state.assign(keras_state.weights(pure.model), best)
                checkpoints.export_file("model.keras", lambda path: keras_state.save(pure.model, plan, path))
    jax.distributed.shutdown()


class Training:
    """The model and its optimizer as functions of their variables' values."""

    def __init__(self, plan: Plan, mesh: DeviceMesh) -> None:
        self.config = config = plan.config
        self.mesh, self.parts, self.clips = mesh, config.accumulate, bool(config.gradient_clip)
        self.smoothing = config.label_smoothing
        self.model = keras_state.create_model(plan)
        self.frozen = keras_state.freeze(self.model, config.freeze)
        self.losses = losses_of(plan, cross_entropy)
        self.optimizer = build_optimizer(config)
        self.optimizer.build(self.model.trainable_variables)
        names = [variable.name for variable in self.optimizer.variables]
        self.rate_index, self.step_index = names.index("learning_rate"), names.index("iteration")
        self.loss_scale = first_loss_scale(config)
        self.average: list[Array] = []
        """The average in a checkpoint; without one it begins with the weights."""

    def step(self, state: State, x: Array, y: Array, rate: Array) -> Updated:
        """Makes one update.

        Args:
            state: Before it.
            x: Images, float32 [global batch, H, W, C].
            y: Labels, int32 [global batch], or of mixtures float32 [global batch, classes].
            rate: The learning rate, float32 [].

        Returns:
            The state after it; each device's mean loss over its part of the batch, before it: float32 [devices]; and
            the gradients' norm, float32 [], if they are clipped.
        """

        def gradients_of(non_trainable: list[Array], batch: Batch, number: int | Array) -> tuple[Any, Array, Any]:
            x, y = batch

            def loss_of(trainable: list[Array]) -> tuple[Array, tuple[Array, list[Array]]]:
                logits, updated = self.model.stateless_call(trainable, non_trainable, x, training=True)
                losses = self.losses.each(logits, y, self.smoothing)
                return scaled(losses.mean(), state.loss_scale), (losses, updated)

            gradients, (losses, updated) = jax.grad(loss_of, has_aux=True)(state.trainable)
            return gradients, losses, updated

        parts = self.parts, self.mesh.batch
        gradients, losses, non_trainable = accumulate(gradients_of, state.non_trainable, (x, y), *parts)
        gradients = unscaled(gradients, state.loss_scale)
        values = list(state.optimizer)
        values[self.rate_index] = rate
        trainable, values = self.optimizer.stateless_apply(values, gradients, state.trainable)
        loss_scale, made = state.loss_scale, values[self.step_index]
        if loss_scale is not None:
            both = (trainable, non_trainable, values), (state.trainable, state.non_trainable, state.optimizer)
            (trainable, non_trainable, values), loss_scale = skip_overflow(loss_scale, gradients, *both)
            # A step that is skipped counts: it has had its batch.
            values[self.step_index] = made
        norm = jnp.sqrt(sum((gradient * gradient).sum() for gradient in gradients)) if self.clips else None
        average = next_average(self.config, state.average, trainable, made)
        state = State(trainable, non_trainable, values, average, loss_scale)
        return state, self.mesh.of_devices(losses), norm

    def eval_step(self, state: State, x: Array, y: Array, numbers: Array) -> Array:
        """Returns sums of a batch, float32 [n]: see `sum_up`."""
        return sum_up(self.losses, self.logits(state, x), y, numbers)

    def logits(self, state: State, x: Array) -> Array:
        """Computes the logits of images or tokens as they are stored."""
        logits: Array
        logits, _ = self.model.stateless_call(state.trainable, state.non_trainable, as_inputs(x), training=False)
        return logits

    def steps_made(self, state: State) -> Array:
        """Returns the steps of the run that a state has made, int32 []."""
        return state.optimizer[self.step_index]

    def state(self) -> State:
        kinds = self.model.trainable_variables, self.model.non_trainable_variables, self.optimizer.variables
        trainable, non_trainable, optimizer = ([variable.value for variable in variables] for variables in kinds)
        average = self.average or first_average(self.config, trainable)
        return State(trainable, non_trainable, optimizer, average, self.loss_scale)

    def shardings(self, state: State) -> State:
        """Returns how a state lies on the devices: its optimizer's part of each weight as the weight."""

        def of_weights(variables: list[keras.Variable]) -> list[Any]:
            return [self.mesh.of_weight(variable.path, variable.shape) for variable in variables]

        trainable, non_trainable = map(of_weights, (self.model.trainable_variables, self.model.non_trainable_variables))
        optimizer: list[Any] = [
            self.mesh.of_weight(self.weight_of(variable), variable.shape) for variable in self.optimizer.variables
        ]
        loss_scale = jax.tree.map(lambda value: self.mesh.whole, state.loss_scale)
        return State(trainable, non_trainable, optimizer, trainable if state.average else [], loss_scale)

    def weight_of(self, variable: keras.Variable) -> str:
        """Returns the path of an optimizer's variable's weight: "fc1/kernel" of "fc1_kernel_momentum"; "" of none."""
        paths = (weight.path for weight in self.model.trainable_variables)
        matching = (path for path in paths if variable.name.startswith(f"{path.replace('/', '_')}_"))
        return max(matching, key=len, default="")

    def write_back(self, state: State) -> None:
        """Writes a state of the model into the variables, whole."""
        kinds = self.model.trainable_variables, self.model.non_trainable_variables
        for variables, values in zip(kinds, state[:2], strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(to_host(value))

    def snapshot(self, state: State) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copies all that training resumes from: the model, and the optimizer's and Dropout's state.

        Of weights that are averaged the model has the average, and the rest themselves.
        """

        def arrays(variables: keras_state.Variables, of: State) -> dict[str, Any]:
            kinds = self.model.trainable_variables, self.model.non_trainable_variables, self.optimizer.variables
            places = [id(variable) for kind in kinds for variable in kind]
            values = dict(zip(places, [*of.trainable, *of.non_trainable, *of.optimizer], strict=True))
            return {name: to_host(values[id(variable)]) for name, variable in variables.items()}

        model = arrays(keras_state.weights(self.model), state.averaged())
        kept = arrays(keras_state.others(self.model, self.optimizer), state)
        if state.loss_scale is not None:
            kept |= to_save(state.loss_scale)
        if state.average:
            trained = {f"{TRAINED}{variable.path}": variable for variable in self.model.trainable_variables}
            kept |= arrays(trained, state)
        return model, kept

    def restore(self, saved: Saved) -> None:
        self.loss_scale = restored(self.loss_scale, saved)
        keras_state.assign(keras_state.weights(self.model), {**saved.model, **saved.part(TRAINED)})
        # Of a checkpoint without an average it begins here. Not by way of the weights, whose type may be narrower.
        self.average = first_average(
            self.config, [saved.model[variable.path] for variable in self.model.trainable_variables]
        )
        keras_state.assign(keras_state.others(self.model, self.optimizer), saved.state)

    def named(self, state: State) -> dict[str, Any]:
        """Returns a state's variables of the model, or their shardings, by path, those that are not trained too."""
        variables = [*self.model.trainable_variables, *self.model.non_trainable_variables]
        values = [*state.trainable, *state.non_trainable]
        return {variable.path: value for variable, value in zip(variables, values, strict=True)}

    def trees(self, state: State) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
        """Returns a state's parameters by path, and their optimizer state, by its field and the same path."""
        paths = [variable.path for variable in self.model.trainable_variables]
        parameters = dict(zip(paths, state.trainable, strict=True))
        kept: dict[str, dict[str, Array]] = {}
        for variable, value in zip(self.optimizer.variables, state.optimizer, strict=True):
            if path := self.weight_of(variable):
                field = variable.name.removeprefix(path.replace("/", "_") + "_")
                kept.setdefault(field, {})[path] = value
        return parameters, kept


def cross_entropy(logits: Array, y: Array, smoothing: float = 0.0) -> Array:
    """Returns the loss of each example, float32 [batch]: labels are int32 [batch], or shares [batch, classes]."""
    losses: Array
    if not smoothing and jnp.issubdtype(y.dtype, jnp.integer):
        losses = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
    else:
        shares = jax.nn.one_hot(y, logits.shape[-1]) if jnp.issubdtype(y.dtype, jnp.integer) else y
        losses = keras.losses.categorical_crossentropy(shares, logits, from_logits=True, label_smoothing=smoothing)
    return losses
