"""The models in PyTorch. Images come as float32 [batch, C, H, W], scaled to 0–1; logits go out as [batch, classes]."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from math import prod

from torch import nn

from trainers.contract.catalog import MLP_WIDTHS, NET_CHANNELS, NET_HIDDEN

Shape = tuple[int, int, int]
"""Height, width, channels."""


def build(name: str, shape: Shape, classes: int) -> nn.Module:
    """Build a model of the catalog with PyTorch's default initialization."""
    return {"mlp": mlp, "net": net}[name](shape, classes)


def mlp(shape: Shape, classes: int) -> nn.Module:
    """A multilayer perceptron: hidden layers of 256 and 128 units, ReLU between."""
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for number, (inputs, outputs) in enumerate(pairwise((prod(shape), *MLP_WIDTHS)), start=1):
        layers |= {f"fc{number}": nn.Linear(inputs, outputs), f"relu{number}": nn.ReLU()}
    layers["out"] = nn.Linear(MLP_WIDTHS[-1], classes)
    return nn.Sequential(OrderedDict(layers))


def net(shape: Shape, classes: int) -> nn.Module:
    """The two-convolution network of the DDP article: 225,226 parameters on 28×28×1 with 10 classes."""
    height, width, channels = shape
    layers: dict[str, nn.Module] = {}
    for number, outputs in enumerate(NET_CHANNELS, start=1):
        layers |= {
            f"conv{number}": nn.Conv2d(channels, outputs, 3),
            f"bn{number}": nn.BatchNorm2d(outputs),
            f"relu{number}": nn.ReLU(),
            f"pool{number}": nn.MaxPool2d(2),
        }
        height, width, channels = (height - 2) // 2, (width - 2) // 2, outputs
    layers |= {"flatten": nn.Flatten(), "fc1": nn.Linear(height * width * channels, NET_HIDDEN), "relu": nn.ReLU()}
    layers["fc2"] = nn.Linear(NET_HIDDEN, classes)
    return nn.Sequential(OrderedDict(layers))
