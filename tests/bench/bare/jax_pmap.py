"""JAX pmap as Flax's example writes it: replicated state, batches with a leading axis of devices, no telemetry.

Source: https://github.com/google/flax/blob/main/examples/imagenet/train.py
"""

import os
from functools import partial
from typing import Any

from tests.bench.bare.common import Race

race = Race.from_command_line()
os.environ["JAX_PLATFORMS"] = race.platform
os.environ["JAX_NUM_CPU_DEVICES"] = str(race.devices)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import jax_utils  # noqa: E402
from flax.training import train_state  # noqa: E402
from flax.training.common_utils import shard, shard_prng_key  # noqa: E402

from tuiapp.trainers.frameworks.jax import models as flax_models  # noqa: E402
from tuiapp.trainers.frameworks.jax.devices import PRECISIONS  # noqa: E402

jax.config.update("jax_default_matmul_precision", PRECISIONS[race.precision])


class TrainState(train_state.TrainState):
    batch_stats: Any


@partial(jax.pmap, axis_name="batch")
def train_step(state: TrainState, x: Any, y: Any, key: Any) -> tuple[TrainState, Any]:
    def loss_fn(params: Any) -> Any:
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updates = state.apply_fn(variables, x, train=True, mutable=["batch_stats"], rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), updates

    (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    grads, loss = jax.lax.pmean((grads, loss), "batch")
    return state.apply_gradients(grads=grads, batch_stats=updates.get("batch_stats", {})), loss


def main() -> None:
    images, labels = race.load()
    model = flax_models.build(race.model, race.classes, jnp.bfloat16 if race.precision == "bfloat16" else jnp.float32)
    variables = model.init(jax.random.key(0), flax_models.empty(images.shape[1:]), train=False)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.adam(1e-3),
        batch_stats=variables.get("batch_stats", {}),
    )
    state = jax_utils.replicate(state)
    generator, key = np.random.default_rng(0), jax.random.key(1)
    steps = len(images) // race.global_batch_size
    for epoch in range(race.epochs):
        race.begin_epoch()
        order = generator.permutation(len(images))[: steps * race.global_batch_size].reshape(steps, -1)
        for rows in order:
            key, dropout = jax.random.split(key)
            state, loss = train_step(state, shard(images[rows]), shard(labels[rows]), shard_prng_key(dropout))
            if not race.first_step:
                loss.block_until_ready()
                race.step_done()
        jax.block_until_ready(state)
        race.end_epoch(epoch)
    race.print_result(len(images))


if __name__ == "__main__":
    main()
