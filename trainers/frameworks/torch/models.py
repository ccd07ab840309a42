"""The models in PyTorch: images, float32 [batch, C, H, W], scaled to 0–1, to logits [batch, classes].

Or of tokens, int64 [batch, context], to the logits of the token after each, [batch, context, vocabulary].

BatchNorm takes a tenth of each batch's statistics and has ε = 1e-5, here and in every other framework. Its running
variance is PyTorch's unbiased one (n / (n − 1) times the biased variance that Flax and Keras keep): a difference of 1 /
(n − 1), where n counts a batch's pixels, and only in evaluation.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from math import prod, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuiapp.trainers.config.catalog import (
    CONVNET_HIDDEN,
    CONVNET_LAYERS,
    GPT_DEVIATION,
    GPT_HEADS,
    GPT_LAYERS,
    GPT_WIDTH,
    MLP_WIDTHS,
    NET_CHANNELS,
    NET_HIDDEN,
    RESNET_BLOCKS,
    RESNET_STAGES,
    Shape,
)
from tuiapp.trainers.config.user_code import PY, UserCodeError
from tuiapp.trainers.sources.user_code import call


def build(name: str, shape: Shape, classes: int) -> nn.Module:
    """Builds a model of the catalog with PyTorch's default initialization, or the user's own, `py:FILE:NAME`."""
    if name.startswith(PY):
        return own(name, shape, classes)
    models = {"mlp": mlp, "net": net, "convnet": convnet, "resnet18": resnet18, "gpt-small": Gpt}
    return models[name](shape, classes)


def own(value: str, shape: Shape, classes: int) -> nn.Module:
    """Builds the user's model and checks its logits; raises UserCodeError if it returns no module, or others."""
    model = call(value, shape, classes)
    if not isinstance(model, nn.Module):
        raise UserCodeError(f"{value} returned a {type(model).__name__}; it must return a torch.nn.Module.")
    if len(shape) == 1:
        kind, inputs, wanted = "tokens", torch.zeros(2, *shape, dtype=torch.long), [2, *shape, classes]
    else:
        kind, inputs, wanted = "images", torch.zeros(2, shape[-1], *shape[:-1]), [2, classes]
    # Also gives lazy layers their sizes.
    with torch.no_grad():
        logits = model.eval()(inputs)
    model.train()
    actual = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if actual != wanted:
        raise UserCodeError(f"{value} gives {actual} for {kind} {list(inputs.shape)}; it must give logits {wanted}.")
    return model


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Returns a multilayer perceptron: hidden layers of 256 and 128 units, ReLU between."""
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for number, (inputs, outputs) in enumerate(pairwise((prod(shape), *MLP_WIDTHS)), start=1):
        layers |= {f"fc{number}": nn.Linear(inputs, outputs), f"relu{number}": nn.ReLU()}
    layers["out"] = nn.Linear(MLP_WIDTHS[-1], classes)
    return nn.Sequential(OrderedDict(layers))


def net(shape: Shape, classes: int) -> nn.Module:
    """Returns the two-convolution network of the DDP article: 225,226 parameters on 28×28×1 with 10 classes."""
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
    """Returns the network of Keras' guide to distributed training: 49,242 parameters on 28×28×1.

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
    """Returns ResNet-18 with a small stem and no max-pooling, for small images: 11,175,818 parameters on 28×28×1.

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
        """Maps [N, C, H, W] to [N, C', ⌈H / stride⌉, ⌈W / stride⌉]."""
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
        """Maps [N, C, H, W] to [N, C', ⌈H / stride⌉, ⌈W / stride⌉]."""
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut: Tensor = self.shortcut(x)
        out: Tensor = self.relu2(y + shortcut)
        return out


class Gpt(nn.Module):
    """A decoder-only transformer: learned positions, normalization before each part, a head of its own, no dropout.

    Initialized as GPT-2 is. Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
    """

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, GPT_WIDTH)
        self.places = nn.Embedding(shape[0], GPT_WIDTH)
        self.blocks = [f"block{number}" for number in range(1, GPT_LAYERS + 1)]
        for name in self.blocks:
            self.add_module(name, Block())
        self.norm = nn.LayerNorm(GPT_WIDTH)
        self.head = nn.Linear(GPT_WIDTH, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" not in name:
                into_stream = name.endswith(("out.weight", "fc2.weight"))
                nn.init.normal_(parameter, std=GPT_DEVIATION / (sqrt(2 * GPT_LAYERS) if into_stream else 1))

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens, int64 [N, context or fewer], to logits, [N, context, vocabulary]."""
        y = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for name in self.blocks:
            y = self.get_submodule(name)(y)
        logits: Tensor = self.head(self.norm(y))
        return logits


class Block(nn.Module):
    """Causal attention, then a hidden layer four times as wide, each beside a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(GPT_WIDTH)
        self.qkv = nn.Linear(GPT_WIDTH, 3 * GPT_WIDTH)
        self.out = nn.Linear(GPT_WIDTH, GPT_WIDTH)
        self.norm2 = nn.LayerNorm(GPT_WIDTH)
        self.fc1 = nn.Linear(GPT_WIDTH, 4 * GPT_WIDTH)
        self.gelu = nn.GELU("tanh")
        self.fc2 = nn.Linear(4 * GPT_WIDTH, GPT_WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [N, T, width] to the same shape."""
        # Each [N, heads, T, width of a head].
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, GPT_HEADS, -1)).permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y: Tensor = x + self.fc2(self.gelu(self.fc1(self.norm2(x))))
        return y
