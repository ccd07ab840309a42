"""The models in MXNet's Gluon: images, float32 [batch, C, H, W], scaled to 0–1, to logits [batch, classes].

Layers have the names of `torch_models`, and its initialization. BatchNorm's running variance is the biased one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from math import prod, sqrt
from typing import Any

import mxnet as mx
from mxnet import gluon, np, npx
from mxnet.gluon import nn

from tuiapp.trainers.config.catalog import (
    CONVNET_HIDDEN,
    CONVNET_LAYERS,
    MLP_WIDTHS,
    NET_CHANNELS,
    NET_HIDDEN,
    RESNET_BLOCKS,
    RESNET_STAGES,
    Shape,
)
from tuiapp.trainers.config.user_code import PY, UserCodeError
from tuiapp.trainers.sources.user_code import call

# The interface that the book uses; a model of the user's own gets and returns its arrays, too.
npx.set_np()


def create(name: str, shape: Shape, classes: int, contexts: list[mx.Context]) -> gluon.Block:
    """Builds a model with a replica on each context, compiled where it is one of the catalog.

    Raises UserCodeError if the user's own returns no Block, or other logits.
    """
    if name.startswith(PY):
        return own(name, shape, classes, contexts)
    model = build(name, shape, classes)
    model.initialize(ctx=contexts)
    model.hybridize(static_alloc=True)
    return model


def build(name: str, shape: Shape, classes: int) -> nn.HybridSequential:
    """Builds a model of the catalog; `initialize` draws its weights as PyTorch does by default."""
    return {"mlp": mlp, "net": net, "convnet": convnet, "resnet18": resnet18}[name](shape, classes)


def own(value: str, shape: Shape, classes: int, contexts: list[mx.Context]) -> gluon.Block:
    """Builds the user's model, `py:FILE:NAME`, and checks its logits; raises UserCodeError."""
    model = call(value, shape, classes)
    if not isinstance(model, gluon.Block):
        raise UserCodeError(f"{value} returned a {type(model).__name__}; it must return a mxnet.gluon.Block.")
    with warnings.catch_warnings():
        # Parameters that the user has initialized stay as they are.
        warnings.simplefilter("ignore")
        model.initialize(ctx=contexts)
    for parameter in model.collect_params().values():
        if parameter.list_ctx() != contexts:
            parameter.reset_ctx(contexts)
    height, width, channels = shape
    images = (2, channels, height, width)
    # Also gives layers without sizes theirs.
    logits = model(np.zeros(images, ctx=contexts[0]))
    actual = list(logits.shape) if isinstance(logits, np.ndarray) else type(logits).__name__
    if actual != [2, classes]:
        raise UserCodeError(f"{value} gives {actual} for images {list(images)}; it must give logits [2, {classes}].")
    return model


def mlp(shape: Shape, classes: int) -> nn.HybridSequential:
    """Returns a multilayer perceptron: hidden layers of 256 and 128 units, ReLU between."""
    layers: dict[str, Any] = {"flatten": nn.Flatten()}
    for number, (inputs, outputs) in enumerate(pairwise((prod(shape), *MLP_WIDTHS)), start=1):
        layers |= {f"fc{number}": dense(inputs, outputs), f"relu{number}": nn.Activation("relu")}
    return sequential({**layers, "out": dense(MLP_WIDTHS[-1], classes)})


def net(shape: Shape, classes: int) -> nn.HybridSequential:
    """Returns the two-convolution network of the DDP article: 225,226 parameters on 28×28×1 with 10 classes."""
    height, width, channels = shape
    layers: dict[str, Any] = {}
    for number, outputs in enumerate(NET_CHANNELS, start=1):
        layers |= {
            f"conv{number}": convolution(channels, outputs, 3),
            f"bn{number}": batch_norm(outputs),
            f"relu{number}": nn.Activation("relu"),
            f"pool{number}": nn.MaxPool2D(2),
        }
        height, width, channels = (height - 2) // 2, (width - 2) // 2, outputs
    layers |= {"flatten": nn.Flatten(), "fc1": dense(height * width * channels, NET_HIDDEN)}
    return sequential({**layers, "relu": nn.Activation("relu"), "fc2": dense(NET_HIDDEN, classes)})


def convnet(shape: Shape, classes: int) -> nn.HybridSequential:
    """Returns the network of Keras' guide to distributed training: 49,242 parameters on 28×28×1.

    Source: https://keras.io/guides/distributed_training_with_jax/
    """
    height, width, channels = shape
    layers: dict[str, Any] = {}
    for number, (outputs, kernel, stride, bias, padded) in enumerate(CONVNET_LAYERS, start=1):
        if padded:
            # As TensorFlow and JAX pad for "SAME": if odd, the greater half goes to the bottom and the right.
            totals = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in (height, width)]
            layers[f"pad{number}"] = Pad(tuple((total // 2, total - total // 2) for total in totals))
        else:
            height, width = height - kernel + 1, width - kernel + 1
        height, width = -(-height // stride), -(-width // stride)
        layers |= {
            f"conv{number}": convolution(channels, outputs, kernel, strides=stride, use_bias=bias),
            # No learned scale: it stays 1.
            f"bn{number}": batch_norm(outputs, scale=False),
            f"relu{number}": nn.Activation("relu"),
        }
        channels = outputs
    layers |= {"pool": nn.GlobalAvgPool2D(), "flatten": nn.Flatten(), "fc1": dense(channels, CONVNET_HIDDEN)}
    layers |= {"relu": nn.Activation("relu"), "dropout": nn.Dropout(0.5)}
    return sequential({**layers, "fc2": dense(CONVNET_HIDDEN, classes)})


def resnet18(shape: Shape, classes: int) -> nn.HybridSequential:
    """Returns ResNet-18 with a small stem and no max-pooling, for small images: 11,175,818 parameters on 28×28×1.

    Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
    """
    channels = RESNET_STAGES[0][0]
    layers: dict[str, Any] = {
        "conv": convolution(shape[2], channels, 3, padding=1),
        "bn": batch_norm(channels),
        "relu": nn.Activation("relu"),
    }
    for stage, (outputs, first_stride) in enumerate(RESNET_STAGES, start=1):
        for block in range(1, RESNET_BLOCKS + 1):
            layers[f"stage{stage}_block{block}"] = Residual(channels, outputs, first_stride if block == 1 else 1)
            channels = outputs
    layers |= {"pool": nn.GlobalAvgPool2D(), "flatten": nn.Flatten(), "fc": dense(channels, classes)}
    return sequential(layers)


def sequential(layers: Mapping[str, Any]) -> nn.HybridSequential:
    """Returns layers in a row under names of their own, which `save_parameters` writes: `add` would number them."""
    model = nn.HybridSequential()
    for name, layer in layers.items():
        model.register_child(layer, name)
    return model


def convolution(inputs: int, outputs: int, kernel: int, **options: Any) -> nn.Conv2D:
    """Returns a convolution with PyTorch's default initialization."""
    return nn.Conv2D(outputs, kernel, in_channels=inputs, **options, **uniform(inputs * kernel**2))


def dense(inputs: int, outputs: int) -> nn.Dense:
    """Returns a dense layer with PyTorch's default initialization."""
    return nn.Dense(outputs, in_units=inputs, **uniform(inputs))


def uniform(inputs: int) -> dict[str, Any]:
    """Returns weights and biases between ±1/√inputs, as PyTorch draws them."""
    bound = 1 / sqrt(inputs)
    return {"weight_initializer": mx.init.Uniform(bound), "bias_initializer": mx.init.Uniform(bound)}


def batch_norm(channels: int, *, scale: bool = True) -> nn.BatchNorm:
    """Returns BatchNorm as in the other frameworks: MXNet's momentum is the share of the old statistics."""
    return nn.BatchNorm(momentum=0.9, epsilon=1e-5, scale=scale, in_channels=channels)


class Pad(nn.HybridBlock):
    """Pads rows and columns with zeros."""

    def __init__(self, pads: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.pads = ((0, 0), (0, 0), *pads)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Maps [N, C, H, W] to [N, C, H + top + bottom, W + left + right]."""
        return F.np.pad(x, self.pads)


class Residual(nn.HybridBlock):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution if the stride is not 1.

    With stride 1, which applies to the first convolution and the shortcut, `outputs` equals `inputs`.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, 3, strides=stride, padding=1)
        self.bn1 = batch_norm(outputs)
        self.conv2 = convolution(outputs, outputs, 3, padding=1)
        self.bn2 = batch_norm(outputs)
        self.shortcut = convolution(inputs, outputs, 1, strides=stride) if stride > 1 else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Maps [N, C, H, W] to [N, C', ⌈H / stride⌉, ⌈W / stride⌉]."""
        y = F.npx.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.npx.relu(y + (self.shortcut(x) if self.shortcut else x))
