"""The models in Flax: images, float32 [batch, H, W, C], scaled to 0–1, to logits [batch, classes].

Or of tokens, int32 [batch, context], to the logits of the token after each, [batch, context, vocabulary].

Layers have the names of `torch_models`. With `train=True` BatchNorm normalizes with the statistics of its batch and
Dropout draws from the "dropout" stream. The layers compute in `dtype`; parameters, statistics and logits stay float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from math import sqrt
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

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
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.sources.user_code import call

# PyTorch's momentum is the share of the new statistics, Flax's that of the old ones. Flax's faster variance,
# E[x²] − E[x]², loses digits where the mean is large against the deviation, and PyTorch does not use it. But over
# several GPUs both means are one all-reduce, where a variance from the mean waits for that of the mean.
BatchNorm = partial(nn.BatchNorm, momentum=0.9, epsilon=1e-5, use_fast_variance=True)
LayerNorm = partial(nn.LayerNorm, epsilon=1e-5, use_fast_variance=False)


def build(name: str, classes: int, dtype: DTypeLike = jnp.float32) -> nn.Module:
    """Builds a model of the catalog; `init` makes its parameters, with Flax's default initialization."""
    models: dict[str, type[MLP | Net | ConvNet | ResNet18 | Gpt]]
    models = {"mlp": MLP, "net": Net, "convnet": ConvNet, "resnet18": ResNet18, "gpt-small": Gpt}
    return models[name](classes, dtype)


def own(value: str, shape: Shape, classes: int) -> nn.Module:
    """Builds the user's own model, `py:FILE:NAME`; raises UserCodeError if it returns no Linen module."""
    model = call(value, shape, classes)
    if not isinstance(model, nn.Module):
        raise UserCodeError(f"{value} returned a {type(model).__name__}; it must return a flax.linen.Module.")
    return model


def methods(model: nn.Module) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns a model's `init` and `apply`, which take `train`; a model without it works alike in training and not."""
    if "train" in signature(type(model).__call__).parameters:
        return model.init, model.apply

    def init(*arguments: Any, train: bool) -> Any:
        return model.init(*arguments)

    def apply(*arguments: Any, train: bool, **options: Any) -> Any:
        return model.apply(*arguments, **options)

    return init, apply


def empty(shape: Shape) -> Array:
    """Returns a batch of one input: an image of zeros, or tokens."""
    return jnp.zeros((1, *shape), jnp.int32 if len(shape) == 1 else jnp.float32)


def check_own(value: str, model: nn.Module, inputs: Array, classes: int) -> None:
    """Checks variables and logits by their shapes alone; raises UserCodeError if training cannot use them."""
    init, apply = methods(model)
    variables = jax.eval_shape(partial(init, train=False), jax.random.key(0), inputs)
    if other := variables.keys() - {"params", "batch_stats"}:
        raise UserCodeError(f"{value} has variables {', '.join(other)}; it may have params and batch_stats.")
    logits = jax.eval_shape(partial(apply, train=False), variables, inputs)
    actual = list(logits.shape) if isinstance(logits, jax.ShapeDtypeStruct) else type(logits).__name__
    kind, shape = ("tokens", inputs.shape) if inputs.ndim == 2 else ("images", inputs.shape[:1])
    if actual != [*shape, classes]:
        wanted = f"it must give logits {[*shape, classes]}"
        raise UserCodeError(f"{value} gives {actual} for {kind} {list(inputs.shape)}; {wanted}.")


class MLP(nn.Module):
    """A multilayer perceptron: hidden layers of 256 and 128 units, ReLU between."""

    classes: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        x = x.reshape(len(x), -1)
        for number, width in enumerate(MLP_WIDTHS, start=1):
            x = nn.relu(nn.Dense(width, dtype=self.dtype, name=f"fc{number}")(x))
        return nn.Dense(self.classes, dtype=self.dtype, name="out")(x).astype(jnp.float32)


class Net(nn.Module):
    """The two-convolution network of the DDP article: 225,226 parameters on 28×28×1 with 10 classes."""

    classes: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        for number, channels in enumerate(NET_CHANNELS, start=1):
            x = nn.Conv(channels, (3, 3), padding="VALID", dtype=self.dtype, name=f"conv{number}")(x)
            x = BatchNorm(use_running_average=not train, dtype=self.dtype, name=f"bn{number}")(x)
            x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        x = x.reshape(len(x), -1)
        x = nn.relu(nn.Dense(NET_HIDDEN, dtype=self.dtype, name="fc1")(x))
        return nn.Dense(self.classes, dtype=self.dtype, name="fc2")(x).astype(jnp.float32)


class ConvNet(nn.Module):
    """The network of Keras' guide to distributed training: 49,242 parameters on 28×28×1.

    Source: https://keras.io/guides/distributed_training_with_jax/
    """

    classes: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        for number, (channels, kernel, stride, bias, padded) in enumerate(CONVNET_LAYERS, start=1):
            x = nn.Conv(
                channels,
                (kernel, kernel),
                (stride, stride),
                padding="SAME" if padded else "VALID",
                use_bias=bias,
                dtype=self.dtype,
                name=f"conv{number}",
            )(x)
            x = BatchNorm(use_running_average=not train, use_scale=False, dtype=self.dtype, name=f"bn{number}")(x)
            x = nn.relu(x)
        x = x.mean((1, 2))
        x = nn.relu(nn.Dense(CONVNET_HIDDEN, dtype=self.dtype, name="fc1")(x))
        x = nn.Dropout(0.5, deterministic=not train, name="dropout")(x)
        return nn.Dense(self.classes, dtype=self.dtype, name="fc2")(x).astype(jnp.float32)


class ResNet18(nn.Module):
    """ResNet-18 with a small stem and no max-pooling, for small images: 11,175,818 parameters on 28×28×1.

    Source: https://d2l.ai/chapter_computational-performance/multiple-gpus-concise.html
    """

    classes: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        x = nn.Conv(RESNET_STAGES[0][0], (3, 3), padding=1, dtype=self.dtype, name="conv")(x)
        x = nn.relu(BatchNorm(use_running_average=not train, dtype=self.dtype, name="bn")(x))
        for stage, (channels, first_stride) in enumerate(RESNET_STAGES, start=1):
            for block in range(1, RESNET_BLOCKS + 1):
                stride = first_stride if block == 1 else 1
                x = Residual(channels, stride, self.dtype, name=f"stage{stage}_block{block}")(x, train)
        x = x.mean((1, 2))
        return nn.Dense(self.classes, dtype=self.dtype, name="fc")(x).astype(jnp.float32)


class Residual(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the stride is not 1."""

    channels: int
    stride: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Maps [N, H, W, C] to [N, ⌈H / stride⌉, ⌈W / stride⌉, channels]."""
        norm = partial(BatchNorm, use_running_average=not train, dtype=self.dtype)
        strides = (self.stride, self.stride)
        # Padding of 1 on all sides, as PyTorch has it: "SAME" would pad a stride of 2 differently.
        y = nn.Conv(self.channels, (3, 3), strides, padding=1, dtype=self.dtype, name="conv1")(x)
        y = nn.relu(norm(name="bn1")(y))
        y = nn.Conv(self.channels, (3, 3), padding=1, dtype=self.dtype, name="conv2")(y)
        y = norm(name="bn2")(y)
        if self.stride > 1:
            x = nn.Conv(self.channels, (1, 1), strides, padding="VALID", dtype=self.dtype, name="shortcut")(x)
        return nn.relu(x + y)


class Gpt(nn.Module):
    """A decoder-only transformer: learned positions, normalization before each part, a head of its own, no dropout.

    Initialized as GPT-2 is. Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
    """

    classes: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Maps tokens, int32 [N, T], to logits, [N, T, vocabulary]."""
        start = nn.initializers.normal(GPT_DEVIATION)
        embed = partial(nn.Embed, features=GPT_WIDTH, embedding_init=start, dtype=self.dtype)
        y = embed(self.classes, name="tokens")(x) + embed(x.shape[1], name="places")(jnp.arange(x.shape[1]))
        for number in range(1, GPT_LAYERS + 1):
            y = Block(self.dtype, name=f"block{number}")(y)
        y = LayerNorm(dtype=self.dtype, name="norm")(y)
        logits = nn.Dense(self.classes, use_bias=False, kernel_init=start, dtype=self.dtype, name="head")(y)
        return logits.astype(jnp.float32)


def wide_attention(dtype: DTypeLike) -> bool:
    """Whether attention has to be computed in float32: JAX's wants products of float16 that XLA lacks on CPUs."""
    return bool(dtype == jnp.float16) and jax.default_backend() == "cpu"


class Block(nn.Module):
    """Causal attention, then a hidden layer four times as wide, each beside a residual stream."""

    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps [N, T, width] to the same shape."""
        start, into_stream = (nn.initializers.normal(GPT_DEVIATION / part) for part in (1, sqrt(2 * GPT_LAYERS)))
        dense = partial(nn.Dense, dtype=self.dtype)
        qkv = dense(3 * GPT_WIDTH, kernel_init=start, name="qkv")(LayerNorm(dtype=self.dtype, name="norm1")(x))
        # Each [N, T, heads, width of a head].
        q, k, v = jnp.moveaxis(qkv.reshape(*x.shape[:2], 3, GPT_HEADS, -1), 2, 0)
        if wide_attention(q.dtype):
            q, k, v = (array.astype(jnp.float32) for array in (q, k, v))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + dense(GPT_WIDTH, kernel_init=into_stream, name="out")(attended)
        hidden = dense(4 * GPT_WIDTH, kernel_init=start, name="fc1")(LayerNorm(dtype=self.dtype, name="norm2")(x))
        return x + dense(GPT_WIDTH, kernel_init=into_stream, name="fc2")(nn.gelu(hidden))
