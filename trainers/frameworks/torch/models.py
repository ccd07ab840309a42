"""The models in PyTorch: images, float32 [batch, C, H, W], scaled to 0–1, to logits [batch, classes].

BatchNorm takes a tenth of each batch's statistics and has ε = 1e-5, here and in every other framework. Its running
variance is PyTorch's unbiased one (n / (n − 1) times the biased variance that Flax and Keras keep): a difference of 1 /
(n − 1), where n counts a batch's pixels, and only in evaluation.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers.config.catalog import (
    CONVNET_HIDDEN,
    CONVNET_LAYERS,
    MLP_WIDTHS,
    NET_CHANNELS,
    NET_HIDDEN,
    RESNET_BLOCKS,
    RESNET_STAGES,
)
from trainers.config.user_code import PY, UserCodeError
from trainers.sources.user_code import call

Shape = tuple[int, int, int]
"""Height, width, channels."""


def build(name: str, shape: Shape, classes: int) -> nn.Module:
    """Builds a model of the catalog with PyTorch's default initialization, or the user's own, `py:FILE:NAME`."""
    if name.startswith(PY):
        return own(name, shape, classes)
    return {"mlp": mlp, "net": net, "convnet": convnet, "resnet18": resnet18}[name](shape, classes)


def own(value: str, shape: Shape, classes: int) -> nn.Module:
    """Builds the user's model and checks its logits; raises UserCodeError if it returns no module, or others."""
    model = call(value, shape, classes)
    if not isinstance(model, nn.Module):
        raise UserCodeError(f"{value} returned a {type(model).__name__}; it must return a torch.nn.Module.")
    height, width, channels = shape
    # Also gives lazy layers their sizes.
    with torch.no_grad():
        logits = model.eval()(torch.zeros(2, channels, height, width))
    model.train()
    found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != [2, classes]:
        raise UserCodeError(
            f"{value} gives {found} for images [2, {channels}, {height}, {width}]; it must give logits [2, {classes}]."
        )
    return model


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


def convnet(shape: Shape, classes: int) -> nn.Module:
    """The network of Keras' guide to distributed training: 49,242 parameters on 28×28×1.

    Source: https://keras.io/guides/distributed_training_with_jax/
    """
    channels = shape[2]
    layers: dict[str, nn.Module] = {}
    for number, (outputs, kernel, stride, bias, padded) in enumerate(CONVNET_LAYERS, start=1):
        convolution = SameConv2d if padded else nn.Conv2d
        norm = nn.BatchNorm2d(outputs)
        # No learned scale: it stays 1.
        norm.weight.requires_grad_(False)
        layers |= {
            f"conv{number}": convolution(channels, outputs, kernel, stride, bias=bias),
            f"bn{number}": norm,
            f"relu{number}": nn.ReLU(),
        }
        channels = outputs
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    layers |= {"fc1": nn.Linear(channels, CONVNET_HIDDEN), "relu": nn.ReLU(), "dropout": nn.Dropout(0.5)}
    layers["fc2"] = nn.Linear(CONVNET_HIDDEN, classes)
    return nn.Sequential(OrderedDict(layers))


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """ResNet-18 with a small stem and no max-pooling, for small images: 11,175,818 parameters on 28×28×1.

    Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
    """
    channels = RESNET_STAGES[0][0]
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(shape[2], channels, 3, padding=1),
        "bn": nn.BatchNorm2d(channels),
        "relu": nn.ReLU(),
    }
    for stage, (outputs, first_stride) in enumerate(RESNET_STAGES, start=1):
        for block in range(1, RESNET_BLOCKS + 1):
            layers[f"stage{stage}_block{block}"] = Residual(channels, outputs, first_stride if block == 1 else 1)
            channels = outputs
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(channels, classes)}
    return nn.Sequential(OrderedDict(layers))


class SameConv2d(nn.Conv2d):
    """A convolution with ⌈size / stride⌉ output rows and columns, padded as in TensorFlow and JAX for "SAME".

    The padding depends on the input's size, and if odd the greater half goes to the bottom and the right; PyTorch's own
    padding is the same on both sides.
    """

    def forward(self, x: Tensor) -> Tensor:
        """From [N, C, H, W] to [N, C', ⌈H / stride⌉, ⌈W / stride⌉]."""
        pads: list[int] = []
        # `F.pad` takes the last axis first.
        for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


class Residual(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution if the stride is not 1.

    With stride 1, which applies to the first convolution and the shortcut, `outputs` equals `inputs`.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride) if stride > 1 else nn.Identity()
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """From [N, C, H, W] to [N, C', ⌈H / stride⌉, ⌈W / stride⌉]."""
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut: Tensor = self.shortcut(x)
        out: Tensor = self.relu2(y + shortcut)
        return out
