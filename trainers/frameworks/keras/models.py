"""The models in Keras 3: images, float32 [batch, H, W, C], from 0 to 1, to logits [batch, classes].

Or of tokens, int32 [batch, context], to the logits of the token after each, [batch, context, vocabulary].

Functional models of Keras' own layers and operations only, so that a saved one loads in plain Keras. Layers have the
names of `torch_models`, those of a block prefixed by the block's name. All that a user's keras.json may change (data
format, data type) is set here. With "mixed_bfloat16" the layers compute in bfloat16, with "mixed_float16" in float16;
parameters, statistics and logits stay float32.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import keras
from keras import layers, ops

from tuiapp.trainers.config.catalog import (
    CONVNET_HIDDEN,
    CONVNET_LAYERS,
    GPT_DEVIATION,
    GPT_HEADS,
    GPT_LAYERS,
    GPT_WIDTH,
    HALF,
    MLP_WIDTHS,
    NET_CHANNELS,
    NET_HIDDEN,
    RESNET_BLOCKS,
    RESNET_STAGES,
    Shape,
)
from tuiapp.trainers.config.normalization import Normalization
from tuiapp.trainers.config.user_code import PY, UserCodeError
from tuiapp.trainers.sources.user_code import call

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
    models = {"mlp": _mlp, "net": _net, "convnet": _convnet, "resnet18": _resnet18, "gpt-small": _gpt}
    models[name](stack, classes)
    logits = layers.Activation("linear", name="logits", dtype="float32")(stack.x)
    return keras.Model(stack.inputs, logits, name=name)


def own(value: str, shape: Shape, classes: int) -> keras.Model:
    """Builds the user's model and checks its logits; raises UserCodeError if training cannot use it."""
    model = call(value, shape, classes)
    if not isinstance(model, keras.Model):
        raise UserCodeError(f"{value} returned a {type(model).__name__}; it must return a keras.Model.")
    kind, dtype, axes = ("tokens", "int32", shape) if len(shape) == 1 else ("images", "float32", ())
    # Also builds a model whose layers get their sizes from the first inputs.
    logits = model(ops.zeros((2, *shape), dtype), training=False)
    actual, wanted = list(logits.shape) if ops.is_tensor(logits) else type(logits).__name__, [2, *axes, classes]
    if actual != wanted:
        raise UserCodeError(f"{value} gives {actual} for {kind} {[2, *shape]}; it must give logits {wanted}.")
    paths = [variable.path for variable in model.weights]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UserCodeError(f"{value} has two variables {twice}; give its layers names of their own.")
    return model


def rescaled(model: keras.Model, shape: Shape) -> keras.Model:
    """Returns the model for images from 0 to 255."""
    return before(model, shape, [layers.Rescaling(1 / 255, dtype="float32", name="rescaling")])


def normalizing(by: Normalization) -> layers.Layer:
    """Normalizes images of 0 to 1, without weights."""
    variance = [std * std for std in by.std]
    return layers.Normalization(-1, list(by.mean), variance, dtype="float32", name="normalization")


def before(model: keras.Model, shape: Shape, prepended: list[layers.Layer]) -> keras.Model:
    """Returns the model with some layers before it."""
    images = x = keras.Input(shape, dtype="float32", name="images")
    for layer in prepended:
        x = layer(x)
    return keras.Model(images, model(x))


class Stack:
    """Layers on top of each other; `dtype` is their data type policy."""

    def __init__(self, shape: Shape, dtype: str) -> None:
        self.dtype = dtype
        kind = {"dtype": "int32", "name": "text"} if len(shape) == 1 else {"dtype": "float32", "name": "images"}
        self.inputs = self.x = keras.Input(shape, **kind)

    def put(self, layer: type[Any], *arguments: object, **options: object) -> None:
        self.x = layer(*arguments, dtype=self.dtype, **options)(self.x)

    def dense(self, units: int, name: str, **options: object) -> None:
        self.put(layers.Dense, units, name=name, **options)

    def convolution(self, channels: int, kernel: int, name: str, **options: object) -> None:
        self.put(layers.Conv2D, channels, kernel, name=name, data_format=FORMAT, **options)

    def norm(self, name: str, **options: object) -> None:
        self.put(layers.BatchNormalization, name=name, axis=-1, momentum=0.9, epsilon=1e-5, **options)

    def layer_norm(self, name: str) -> None:
        self.put(layers.LayerNormalization, name=name, axis=-1, epsilon=1e-5)

    def relu(self, name: str) -> None:
        self.put(layers.ReLU, name=name)

    def add(self, other: Any, name: str) -> None:
        self.x = layers.Add(name=name, dtype=self.dtype)([other, self.x])


def _mlp(stack: Stack, classes: int) -> None:
    """Adds a multilayer perceptron: hidden layers of 256 and 128 units, ReLU between."""
    stack.put(layers.Flatten, name="flatten", data_format=FORMAT)
    for number, width in enumerate(MLP_WIDTHS, start=1):
        stack.dense(width, f"fc{number}")
        stack.relu(f"relu{number}")
    stack.dense(classes, "out")


def _net(stack: Stack, classes: int) -> None:
    """Adds the two-convolution network of the DDP article: 225,226 parameters on 28×28×1 with 10 classes."""
    for number, channels in enumerate(NET_CHANNELS, start=1):
        stack.convolution(channels, 3, f"conv{number}")
        stack.norm(f"bn{number}")
        stack.relu(f"relu{number}")
        stack.put(layers.MaxPooling2D, 2, name=f"pool{number}", data_format=FORMAT)
    stack.put(layers.Flatten, name="flatten", data_format=FORMAT)
    stack.dense(NET_HIDDEN, "fc1")
    stack.relu("relu")
    stack.dense(classes, "fc2")


def _convnet(stack: Stack, classes: int) -> None:
    """Adds the network of Keras' guide to distributed training: 49,242 parameters on 28×28×1.

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
    stack.dense(classes, "fc2")


def _resnet18(stack: Stack, classes: int) -> None:
    """Adds ResNet-18 with a small stem and no max-pooling, for small images: 11,175,818 parameters on 28×28×1.

    Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
    """
    stack.convolution(RESNET_STAGES[0][0], 3, "conv", padding="same")
    stack.norm("bn")
    stack.relu("relu")
    for stage, (channels, first_stride) in enumerate(RESNET_STAGES, start=1):
        for block in range(1, RESNET_BLOCKS + 1):
            _residual(stack, f"stage{stage}_block{block}", channels, first_stride if block == 1 else 1)
    stack.put(layers.GlobalAveragePooling2D, name="pool", data_format=FORMAT)
    stack.dense(classes, "fc")


def _residual(stack: Stack, name: str, channels: int, stride: int) -> None:
    """Adds two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the stride is not 1."""
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
    y, stack.x = stack.x, shortcut
    if stride > 1:
        stack.convolution(channels, 1, f"{name}_shortcut", strides=stride)
    stack.add(y, f"{name}_add")
    stack.relu(f"{name}_relu2")


def _gpt(stack: Stack, classes: int) -> None:
    """Adds a decoder-only transformer: learned positions, normalization before each part, its own head, no dropout.

    Initialized as GPT-2 is. Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
    """
    text = stack.x
    stack.put(layers.Embedding, classes, GPT_WIDTH, _normal(), name="tokens")
    # A constant would be no part of a functional model.
    tokens, stack.x = stack.x, ops.cumsum(ops.ones_like(text), axis=1) - 1
    stack.put(layers.Embedding, text.shape[1], GPT_WIDTH, _normal(), name="places")
    stack.add(tokens, "embedded")
    for number in range(1, GPT_LAYERS + 1):
        _block(stack, f"block{number}")
    stack.layer_norm("norm")
    stack.dense(classes, "head", use_bias=False, kernel_initializer=_normal())


def _block(stack: Stack, name: str) -> None:
    """Adds causal attention, then a hidden layer four times as wide, each beside a residual stream."""
    into_stream = sqrt(2 * GPT_LAYERS)
    stream = stack.x
    stack.layer_norm(f"{name}_norm1")
    stack.dense(3 * GPT_WIDTH, f"{name}_qkv", kernel_initializer=_normal())
    heads = ops.reshape(stack.x, (-1, stream.shape[1], 3, GPT_HEADS, GPT_WIDTH // GPT_HEADS))
    if _wide_attention(stack.dtype):
        heads = ops.cast(heads, "float32")
    attended = ops.dot_product_attention(*ops.unstack(heads, axis=2), is_causal=True)
    stack.x = ops.reshape(attended, (-1, *stream.shape[1:]))
    stack.dense(GPT_WIDTH, f"{name}_out", kernel_initializer=_normal(into_stream))
    stack.add(stream, f"{name}_add1")
    stream = stack.x
    stack.layer_norm(f"{name}_norm2")
    stack.dense(4 * GPT_WIDTH, f"{name}_fc1", kernel_initializer=_normal())
    stack.x = ops.gelu(stack.x, approximate=True)
    stack.dense(GPT_WIDTH, f"{name}_fc2", kernel_initializer=_normal(into_stream))
    stack.add(stream, f"{name}_add2")


def _wide_attention(policy: str) -> bool:
    """Whether attention has to be computed in float32: JAX's wants products of float16 that XLA lacks on CPUs."""
    if policy != "mixed_float16" or keras.backend.backend() != "jax":
        return False
    import jax

    return jax.default_backend() == "cpu"


def _normal(part: float = 1.0) -> keras.initializers.Initializer:
    """Returns a new initializer for each weight: the same would give the same numbers again."""
    return keras.initializers.RandomNormal(stddev=GPT_DEVIATION / part)
