"""Files of a user's own, for tests: models for each framework, and data sets."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

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
    "mxnet": """
from mxnet.gluon import nn

def net(shape, classes):
    model = nn.HybridSequential()
    model.add(nn.Dense(32, activation="relu"), nn.Dropout(0.1), nn.Dense(classes))
    return model
""",
}
"""Framework → a file that defines `net`."""


def write_model(directory: Path, framework: str) -> str:
    """Writes a model's file; returns its value in a configuration."""
    file = directory / f"{framework}_net.py"
    file.write_text(MODELS[framework])
    return f"py:{file}:net"


DATA = """
import numpy as np

def arrays():
    random = np.random.default_rng(0)
    patterns = random.random((3, 12, 10))

    def part(examples):
        labels = np.arange(examples) % 3
        return (255 * (0.6 * patterns[labels] + 0.4 * random.random((examples, 12, 10)))).astype(np.uint8), labels

    print("made anew")
    return *part(300), *part(91)

def mapped():
    from pathlib import Path
    made = []
    for number, array in enumerate(arrays()):
        file = Path(__file__).with_name(f"{number}.npy")
        if not file.exists():
            np.save(file, array)
        made.append(np.load(file, mmap_mode="r") if number in (0, 2) else array)
    return made
"""
"""A file that defines the data set twice: as arrays, and with its images in memory maps."""


def write_data(directory: Path, name: str = "arrays") -> str:
    """Writes a data set's file; returns its value in a configuration."""
    file = directory / "data.py"
    file.write_text(DATA)
    return f"py:{file}:{name}"


COLOURS = {"blue": (30, 40, 220), "green": (20, 200, 60), "red": (220, 50, 30)}


def write_images(directory: Path, *parts: str, each: int = 12, size: tuple[int, int] = (40, 30)) -> str:
    """Writes images of one colour a class under noise, in all formats; returns the data set's name."""
    random = np.random.default_rng(0)
    for part in parts or ("",):
        for name, colour in COLOURS.items():
            folder = directory / part / name
            folder.mkdir(parents=True)
            for number in range(each):
                pixels = np.clip(colour + random.normal(0, 20, (*size[::-1], 3)), 0, 255).astype(np.uint8)
                suffix = ("png", "jpg", "webp", "JPEG")[number % 4]
                Image.fromarray(pixels).save(folder / f"{number}.{suffix}")
    return f"folder:{directory}"


def encoded(label: int, number: int, size: int = 20) -> bytes:
    """A PNG image of a class's colour."""
    noise = np.random.default_rng(number).normal(0, 20, (size, size, 3))
    with io.BytesIO() as file:
        Image.fromarray(np.clip(list(COLOURS.values())[label] + noise, 0, 255).astype(np.uint8)).save(file, "png")
        return file.getvalue()
