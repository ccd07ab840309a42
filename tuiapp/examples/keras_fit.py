"""A Keras model on small digits by `fit`, on JAX or PyTorch.

KERAS_BACKEND=torch tuiapp run keras_fit.py --set processes=one -- --epochs 5
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

from tuiapp.integrations.keras import TuiappCallback
from tuiapp.trainers.sources.datasets import DIGITS_FILE


def main(epochs: int, batch_size: int) -> None:
    with np.load(DIGITS_FILE) as digits:
        x_train, x_test = (digits[name][..., None].astype("float32") / 16 for name in ("x_train", "x_test"))
        y_train, y_test = digits["y_train"], digits["y_test"]

    model = keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ])  # fmt: skip
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(
        x_train, y_train, batch_size=batch_size, epochs=epochs, verbose=2,
        validation_data=(x_test, y_test), callbacks=[TuiappCallback()],
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    main(**vars(parser.parse_args()))
