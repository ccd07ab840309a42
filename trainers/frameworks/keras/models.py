"""The models in Keras 3: images, float32 [batch, H, W, C], from 0 to 1, to logits [batch, classes].

Functional models of Keras' own layers only, so that a saved one loads in plain Keras. Layers have the names of
`torch_models`, those of a residual block prefixed by the block's name. All that a user's keras.json may change (data
format, data type) is set here. With "mixed_bfloat16" the layers compute in bfloat16, with "mixed_float16" in float16;
parameters, statistics and logits stay float32.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

from trainers.config.catalog import (
    CONVNET_HIDDEN,
    CONVNET_LAYERS,
    HALF,
    MLP_WIDTHS,
    NET_CHANNELS,
    NET_HIDDEN,
    RESNET_BLOCKS,
    RESNET_STAGES,
    Shape,
)
from trainers.config.normalization import Normalization
from trainers.config.user_code import PY, UserCodeError
from trainers.sources.user_code import call

FORMAT = "channels_last"


def build(
    name: str,
    shape: Shape,
    classes: int,
    precision: str = "float32",
    *,
    rescaling: bool = False,
    normalization: Normalization | None = None,
) -> keras.Model:
    """Builds the user's own model, `py:FILE:NAME`, or one of the catalog with Keras' default initialization.

    `rescaling` prepends a layer from 0–255 to 0–1, and `normalization` one that normalizes.
    """
    if name.startswith(PY):
        model = own(name, shape, classes)
        return before(model, shape, [normalizing(normalization)]) if normalization else model
    stack = Stack(shape, f"mixed_{precision}" if precision in HALF else "float32")
    if rescaling:
        stack.x = layers.Rescaling(1 / 255, dtype="float32", name="rescaling")(stack.x)
    if normalization:
        stack.x = normalizing(normalization)(stack.x)
    {"mlp": _mlp, "net": _net, "convnet": _convnet, "resnet18": _resnet18}[name](stack)
    # The last layer's name in `torch_models`.
    stack.dense(classes, {"mlp": "out", "resnet18": "fc"}.get(name, "fc2"))
    logits = layers.Activation("linear", name="logits", dtype="float32")(stack.x)
    return keras.Model(stack.inputs, logits, name=name)


def own(value: str, shape: Shape, classes: int) -> keras.Model:
    """Builds the user's model and checks its logits; raises UserCodeError if training cannot use it."""
    model = call(value, shape, classes)
    if not isinstance(model, keras.Model):
        raise UserCodeError(f"{value} returned a {type(model).__name__}; it must return a keras.Model.")
    # Also builds a model whose layers get their sizes from the first images.
    logits = model(keras.ops.zeros((2, *shape)), training=False)
    found = list(logits.shape) if keras.ops.is_tensor(logits) else type(logits).__name__
    if found != [2, classes]:
        wanted = f"it must give logits {[2, classes]}"
        raise UserCodeError(f"{value} gives {found} for images {[2, *shape]}; {wanted}.")
    paths = [variable.path for variable in model.weights]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UserCodeError(f"{value} has two variables {twice}; give its layers names of their own.")
    return model


def rescaled(model: keras.Model, shape: Shape) -> keras.Model:
    """The same model for images from 0 to 255."""
    return before(model, shape, [layers.Rescaling(1 / 255, dtype="float32", name="rescaling")])


def normalizing(by: Normalization) -> layers.Layer:
    """Normalizes images of 0 to 1, without weights."""
    variance = [std * std for std in by.std]
    return layers.Normalization(-1, list(by.mean), variance, dtype="float32", name="normalization")


def before(model: keras.Model, shape: Shape, prepended: list[layers.Layer]) -> keras.Model:
    """The same model behind some layers."""
    images = x = keras.Input(shape, dtype="float32", name="images")
    for layer in prepended:
        x = layer(x)
    return keras.Model(images, model(x))


class Stack:
    """Layers on top of each other; `dtype` is their data type policy."""

    def __init__(self, shape: Shape, dtype: str) -> None:
        self.dtype = dtype
        self.inputs = self.x = keras.Input(shape, dtype="float32", name="images")

    def put(self, layer: type[Any], *arguments: object, **options: object) -> None:
        self.x = layer(*arguments, dtype=self.dtype, **options)(self.x)

    def dense(self, units: int, name: str) -> None:
        self.put(layers.Dense, units, name=name)

    def convolution(self, channels: int, kernel: int, name: str, **options: object) -> None:
        self.put(layers.Conv2D, channels, kernel, name=name, data_format=FORMAT, **options)

    def norm(self, name: str, **options: object) -> None:
        self.put(layers.BatchNormalization, name=name, axis=-1, momentum=0.9, epsilon=1e-5, **options)

    def relu(self, name: str) -> None:
        self.put(layers.ReLU, name=name)


def _mlp(stack: Stack) -> None:
    """A multilayer perceptron: hidden layers of 256 and 128 units, ReLU between."""
    stack.put(layers.Flatten, name="flatten", data_format=FORMAT)
    for number, width in enumerate(MLP_WIDTHS, start=1):
        stack.dense(width, f"fc{number}")
        stack.relu(f"relu{number}")


def _net(stack: Stack) -> None:
    """The two-convolution network of the DDP article: 225,226 parameters on 28×28×1 with 10 classes."""
    for number, channels in enumerate(NET_CHANNELS, start=1):
        stack.convolution(channels, 3, f"conv{number}")
        stack.norm(f"bn{number}")
        stack.relu(f"relu{number}")
        stack.put(layers.MaxPooling2D, 2, name=f"pool{number}", data_format=FORMAT)
    stack.put(layers.Flatten, name="flatten", data_format=FORMAT)
    stack.dense(NET_HIDDEN, "fc1")
    stack.relu("relu")


def _convnet(stack: Stack) -> None:
    """The network of Keras' guide to distributed training: 49,242 parameters on 28×28×1.

    Source: https://keras.io/guides/distributed_training_with_jax/
    """
    for number, (channels, kernel, stride, bias, padded) in enumerate(CONVNET_LAYERS, start=1):
        padding = "same" if padded else "valid"
        stack.convolution(channels, kernel, f"conv{number}", strides=stride, padding=padding, use_bias=bias)
        stack.norm(f"bn{number}", scale=False)
        stack.relu(f"relu{number}")
    stack.put(layers.GlobalAveragePooling2D, name="pool", data_format=FORMAT)
    stack.dense(CONVNET_HIDDEN, "fc1")
    stack.relu("relu")
    stack.put(layers.Dropout, 0.5, name="dropout")


def _resnet18(stack: Stack) -> None:
    """ResNet-18 with a small stem and no max-pooling, for small images: 11,175,818 parameters on 28×28×1.

    Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
    """
    stack.convolution(RESNET_STAGES[0][0], 3, "conv", padding="same")
    stack.norm("bn")
    stack.relu("relu")
    for stage, (channels, first_stride) in enumerate(RESNET_STAGES, start=1):
        for block in range(1, RESNET_BLOCKS + 1):
            _residual(stack, f"stage{stage}_block{block}", channels, first_stride if block == 1 else 1)
    stack.put(layers.GlobalAveragePooling2D, name="pool", data_format=FORMAT)


def _residual(stack: Stack, name: str, channels: int, stride: int) -> None:
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the stride is not 1."""
    shortcut = stack.x
    if stride > 1:
        # Padding of 1 on all sides, as PyTorch has it: "same" would pad a stride of 2 differently.
        stack.put(layers.ZeroPadding2D, 1, name=f"{name}_pad", data_format=FORMAT)
    padding = "valid" if stride > 1 else "same"
    stack.convolution(channels, 3, f"{name}_conv1", strides=stride, padding=padding)
    stack.norm(f"{name}_bn1")
    stack.relu(f"{name}_relu1")
    stack.convolution(channels, 3, f"{name}_conv2", padding="same")
    stack.norm(f"{name}_bn2")
    y = stack.x
    if stride > 1:
        stack.x = shortcut
        stack.convolution(channels, 1, f"{name}_shortcut", strides=stride)
        shortcut = stack.x
    stack.x = layers.Add(name=f"{name}_add", dtype=stack.dtype)([y, shortcut])
    stack.relu(f"{name}_relu2")
