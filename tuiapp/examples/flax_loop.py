"""A Flax Linen network on small digits with Optax, in a loop of one's own that stops on request.

tuiapp run flax_loop.py --set processes=one -- --epochs 5
"""

import argparse
from typing import Any

import jax
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

import tuiapp
from tuiapp.trainers.sources.datasets import DIGITS_FILE


class Network(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(16, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(len(x), -1))


@jax.jit
def train_step(state: TrainState, images: jax.Array, labels: jax.Array) -> tuple[TrainState, jax.Array]:
    def loss_of(params: Any) -> Any:
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def main(epochs: int, batch_size: int, lr: float) -> None:
    with np.load(DIGITS_FILE) as digits:
        images, labels = digits["x_train"][..., None].astype(np.float32) / 16, digits["y_train"]  # [1437, 8, 8, 1]
    network = Network()
    params = network.init(jax.random.key(0), images[:1])["params"]
    state = TrainState.create(apply_fn=network.apply, params=params, tx=optax.sgd(lr, momentum=0.9))

    steps = len(images) // batch_size
    run = tuiapp.init(config={"batch_size": batch_size, "lr": lr}, total_steps=epochs * steps)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(images))
        for batch in np.split(order[: steps * batch_size], steps):
            if run.should_stop():
                return
            state, loss = train_step(state, images[batch], labels[batch])
            run.log({"loss": loss, "epoch": epoch})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    main(**vars(parser.parse_args()))
