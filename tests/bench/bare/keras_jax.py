"""Keras 3 on JAX as its guide writes it: stateless_call and stateless_apply in a jitted step, no telemetry.

Source: https://keras.io/guides/distributed_training_with_jax/
"""

import os
from typing import Any

from tests.bench.bare.common import Race

race = Race.from_command_line()
os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = race.platform
os.environ["JAX_NUM_CPU_DEVICES"] = str(race.devices)

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from tuiapp.trainers.frameworks.jax.devices import PRECISIONS  # noqa: E402
from tuiapp.trainers.frameworks.keras import models as keras_models  # noqa: E402

jax.config.update("jax_default_matmul_precision", PRECISIONS[race.precision])


def main() -> None:
    images, labels = race.load()
    keras.utils.set_random_seed(0)
    model = keras_models.build(race.model, images.shape[1:], race.classes, race.precision)
    optimizer = keras.optimizers.Adam(1e-3)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    def compute_loss(trainable: Any, non_trainable: Any, x: Any, y: Any) -> Any:
        y_pred, non_trainable = model.stateless_call(trainable, non_trainable, x, training=True)
        return loss_fn(y, y_pred), non_trainable

    compute_gradients = jax.value_and_grad(compute_loss, has_aux=True)

    @jax.jit
    def train_step(state: Any, x: Any, y: Any) -> Any:
        trainable, non_trainable, optimizer_variables = state
        (loss, non_trainable), grads = compute_gradients(trainable, non_trainable, x, y)
        trainable, optimizer_variables = optimizer.stateless_apply(optimizer_variables, grads, trainable)
        return loss, (trainable, non_trainable, optimizer_variables)

    mesh = Mesh(np.array(jax.devices()[: race.devices]), ("batch",))
    split, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
    variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state = jax.device_put(tuple([variable.value for variable in group] for group in variables), whole)
    generator = np.random.default_rng(0)
    steps = len(images) // race.global_batch_size
    for epoch in range(race.epochs):
        race.begin_epoch()
        order = generator.permutation(len(images))[: steps * race.global_batch_size].reshape(steps, -1)
        for rows in order:
            loss, state = train_step(state, jax.device_put(images[rows], split), labels[rows])
            if not race.first_step:
                loss.block_until_ready()
                race.step_done()
        jax.block_until_ready(state)
        race.end_epoch(epoch)
    race.print_result(len(images))


if __name__ == "__main__":
    main()
