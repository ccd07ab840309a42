"""Files of a user's own, for tests: models for each framework, and data sets."""

from __future__ import annotations

from pathlib import Path

MODELS = {
    "torch": """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, classes))
""",
    "flax": """
import flax.linen as nn

class Net(nn.Module):
    shape: tuple[int, int, int]
    classes: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.classes)(nn.relu(nn.Dense(32)(x.reshape(len(x), -1))))

net = Net
""",
    "keras": """
import keras
from keras import layers

def net(shape, classes):
    dense = layers.Dense(32, "relu"), layers.Dense(classes)
    return keras.Sequential([keras.Input(shape), layers.Flatten(), *dense])
""",
}
"""Framework → a file that defines `net`."""


def write_model(directory: Path, framework: str) -> str:
    """Writes a model's file; returns its value in a configuration."""
    file = directory / f"{framework}_net.py"
    file.write_text(MODELS[framework])
    return f"py:{file}:net"
