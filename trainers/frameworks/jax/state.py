"""The training state with Flax: parameters, BatchNorm statistics, the optimizer's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from flax import struct
from flax.training import train_state
from jax import Array
from jax.typing import ArrayLike

from tuiapp.trainers.config.normalization import Normalization
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import PY
from tuiapp.trainers.frameworks.jax import models as flax_models
from tuiapp.trainers.frameworks.jax.accumulate import GradientsOf
from tuiapp.trainers.frameworks.jax.devices import Batch, fill, leaf_name, named_leaves
from tuiapp.trainers.frameworks.jax.losses import (
    Losses,
    LossScale,
    first_average,
    first_loss_scale,
    losses_of,
    next_average,
    restored,
    scaled,
    skip_overflow,
    to_save,
)
from tuiapp.trainers.rank.checkpoints import TRAINED, Saved
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.reporter import Reporter

PARAMS = "params."
"""What checkpoints have before a parameter's name."""


class TrainState(train_state.TrainState):
    batch_stats: Any
    average: Any
    """The parameters' averages, which are evaluated; empty without `ema`."""
    loss_scale: LossScale | None
    """The loss scale in float16."""
    seed: Array
    """Seed of Dropout, with the step's number: uint32 []. Not a constant, which would be compiled for each seed."""
    losses: Losses = struct.field(pytree_node=False)
    frozen: frozenset[str] = struct.field(pytree_node=False, default=frozenset())
    """Names of parameters that are not trained."""

    def with_rate(self, rate: ArrayLike) -> TrainState:
        return self.replace(opt_state=optax.tree_utils.tree_set(self.opt_state, learning_rate=rate))

    def apply_gradients(self, *, grads: Any, **changes: Any) -> TrainState:
        updated: TrainState = super().apply_gradients(grads=grads, **changes)
        # Added to an update of 0 a −0 would lose its sign.
        return updated.replace(params=where_frozen(self.frozen, lambda new, old: old, updated.params, self.params))

    def updated(self, gradients: Any, batch_stats: Any) -> TrainState:
        """Returns the state after an update; with the arrays of before where gradients overflow in float16."""
        new: TrainState = self.apply_gradients(grads=gradients, batch_stats=batch_stats)
        if self.loss_scale is None:
            return new
        both = ((state.params, state.opt_state, state.batch_stats) for state in (new, self))
        (params, opt_state, batch_stats), loss_scale = skip_overflow(self.loss_scale, gradients, *both)
        new = new.replace(params=params, opt_state=opt_state, batch_stats=batch_stats, loss_scale=loss_scale)
        return new

    def averaging(self, config: RunConfig) -> TrainState:
        """Returns the state with the parameters after its last step in their average."""
        return self.replace(average=next_average(config, self.average, self.params, self.step))

    def averaged(self) -> TrainState:
        """Returns the state to evaluate: with the average as parameters, if there is one."""
        return self.replace(params=self.average) if self.average else self


def create(plan: Plan) -> TrainState:
    """Returns the state before the first step; the same seed gives the same weights on any number of devices."""
    config, data = plan.config, plan.data
    dtype = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}.get(config.precision, jnp.float32)
    example = flax_models.empty(data.input_shape)
    if config.model.startswith(PY):
        model = flax_models.own(config.model, data.input_shape, data.classes)
        flax_models.check_own(config.model, model, example, data.classes)
    else:
        model = flax_models.build(config.model, data.classes, dtype)
    init, apply = flax_models.methods(model)
    variables = jax.jit(lambda key: init(key, example, train=False))(jax.random.key(config.seed))
    frozen = frozen_names(config.freeze, named_leaves(variables["params"]), PARAMS)
    state: TrainState = TrainState.create(
        apply_fn=normalizing(apply, plan.normalization) if plan.normalization else apply,
        params=variables["params"],
        tx=build_optimizer(config, frozen),
        batch_stats=variables.get("batch_stats", {}),
        average=first_average(config, variables["params"]),
        loss_scale=first_loss_scale(config),
        seed=jnp.uint32(config.seed),
        frozen=frozen,
        losses=losses_of(plan, cross_entropy),
    )
    return state


def begin(state: TrainState, plan: Plan, report: Reporter) -> TrainState:
    """Returns a new run's state with its initial weights; see `tuiapp.trainers.rank.initial`. Raises ConfigError."""
    present = named_leaves(model_of(state))
    shapes = {name: array.shape for name, array in present.items()}
    parameters = [name for name in shapes if name.startswith(PARAMS)]
    initial = initial_weights(plan, report, shapes, parameters, [f"{PARAMS}{name}" for name in state.frozen])
    begun: TrainState = state.replace(**fill(model_of(state), present | initial)) if initial else state
    begun = begun.replace(average=first_average(plan.config, begun.params))
    return begun


def where_frozen(frozen: frozenset[str], change: Callable[..., Any], params: Any, *trees: Any) -> Any:
    """Returns parameters of which the frozen ones are changed, given those of further trees."""
    if not frozen:
        return params

    def leaf(path: tuple[Any, ...], weight: Array, *counterparts: Array) -> Array:
        return change(weight, *counterparts) if leaf_name(path) in frozen else weight

    return jax.tree_util.tree_map_with_path(leaf, params, *trees)


def normalizing(apply: Callable[..., Any], by: Normalization) -> Callable[..., Any]:
    """Returns a model's `apply` on images that are normalized first."""
    mean, std = (np.array(values, np.float32) for values in (by.mean, by.std))

    def on_normalized(variables: object, x: Array, **options: Any) -> Any:
        return apply(variables, (x - mean) / std, **options)

    return on_normalized


def gradients_of(state: TrainState, dropout: Array, config: RunConfig) -> GradientsOf:
    """Returns the gradients of a batch's part, for `accumulate`; from part to part go BatchNorm's running statistics.

    `dropout` is the step's random key, from which each of the parts, if there are several, derives its own. In float16
    they are the gradients of the scaled loss.
    """

    def of_part(batch_stats: Any, batch: Batch, number: int | Array) -> tuple[Any, Array, Any]:
        x, y = batch
        key = dropout if config.accumulate == 1 else jax.random.fold_in(dropout, number)

        def loss_of(params: object) -> tuple[Array, tuple[Array, dict[str, object]]]:
            params = where_frozen(state.frozen, jax.lax.stop_gradient, params)
            variables = {"params": params, "batch_stats": batch_stats}
            logits, updated = state.apply_fn(variables, x, train=True, mutable=["batch_stats"], rngs={"dropout": key})
            losses = state.losses.each(logits, y, config.label_smoothing)
            # Of each example, which may have many.
            return scaled(losses.mean(), state.loss_scale), (losses.reshape(len(x), -1).mean(axis=1), updated)

        gradients, (losses, updated) = jax.grad(loss_of, has_aux=True)(state.params)
        return gradients, losses, updated.get("batch_stats", {})

    return of_part


def cross_entropy(logits: Array, y: Array, smoothing: float) -> Array:
    """Returns each label's loss, float32 […]: of logits [… classes], labels, int32 […], or their shares [… classes]."""
    losses: Array
    if not smoothing and jnp.issubdtype(y.dtype, jnp.integer):
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
    else:
        shares = jax.nn.one_hot(y, logits.shape[-1]) if jnp.issubdtype(y.dtype, jnp.integer) else y
        losses = optax.softmax_cross_entropy(logits, optax.smooth_labels(shares, smoothing))
    return losses


def snapshot(state: TrainState) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Copies of all that training resumes from: the model, and the optimizer's state.

    There is no random state: Dropout draws by the seed and the step's number. Of weights that are averaged the model
    has the average, and the rest themselves.
    """
    arrays = named_leaves({"optimizer": state.opt_state})
    if state.loss_scale is not None:
        arrays |= to_save(state.loss_scale)
    if state.average:
        arrays |= {f"{TRAINED}{name}": array for name, array in named_leaves({"params": state.params}).items()}
    return named_leaves(model_of(state.averaged())), arrays


def restore(state: TrainState, saved: Saved) -> TrainState:
    """Returns a new state, filled from a checkpoint."""
    model = fill(model_of(state), {**saved.model, **saved.part(TRAINED)})
    # Of a checkpoint without an average it begins here.
    average = fill({"params": state.average}, saved.model)["params"]
    optimizer = fill({"optimizer": state.opt_state}, saved.state)["optimizer"]
    scale = restored(state.loss_scale, saved)
    return state.replace(step=saved.step, loss_scale=scale, opt_state=optimizer, average=average, **model)


def model_of(state: TrainState) -> dict[str, Any]:
    """Returns parameters and running statistics."""
    return {"params": state.params, "batch_stats": state.batch_stats}


def build_optimizer(config: RunConfig, frozen: frozenset[str] = frozenset()) -> optax.GradientTransformation:
    """Returns the optimizer, with PyTorch's conventions and constants; its learning rate is part of its state.

    Of `frozen` parameters, by their names, it keeps nothing, and nothing decays them.

    Weight decay is added to the gradient (L2), but decoupled in adamw: rate times decay times parameter is subtracted
    besides Adam's step.
    """
    decay = optax.add_decayed_weights(config.weight_decay)
    parts: tuple[optax.GradientTransformation, ...] = {
        "sgd": (decay, optax.trace(config.momentum, nesterov=config.nesterov)),
        "adam": (decay, optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)),
        "adamw": (optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8), decay),
        "adadelta": (decay, optax.scale_by_adadelta(rho=0.9, eps=1e-6)),
    }[config.optimizer]
    if config.gradient_clip:
        parts = (optax.clip_by_global_norm(config.gradient_clip), *parts)

    def with_rate(learning_rate: ArrayLike) -> optax.GradientTransformation:
        chained = optax.chain(*parts, optax.scale_by_learning_rate(learning_rate))
        return optax.masked(chained, trained) if frozen else chained

    def trained(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(lambda path, _: leaf_name(path) not in frozen, params)

    # Not in the type of the weights, of which bfloat16 would round the rate.
    injected = optax.inject_hyperparams(with_rate, hyperparam_dtype=jnp.float32)
    return injected(learning_rate=config.learning_rate)
