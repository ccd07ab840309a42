"""Moves a torch model's weights into the Flax, Keras and Gluon model of the same name."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from torch import nn


def from_torch(
    model: nn.Module, variables: dict[str, Any], before_flatten: tuple[int, int, int] = (0, 0, 0)
) -> dict[str, Any]:
    """The Flax variables that hold what a torch model holds.

    Args:
        model: Whose weights.
        variables: Of the Flax model: names and shapes.
        before_flatten: Height, width and channels of what "fc1" sees flattened. PyTorch flattens it channels first.
    """
    state = _arrays(model)
    names = {
        "kernel": "weight",
        "embedding": "weight",
        "scale": "weight",
        "bias": "bias",
        "mean": "running_mean",
        "var": "running_var",
    }

    def fill(tree: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        return {
            key: fill(value, (*path, key)) if isinstance(value, dict) else leaf(value, (*path, key))
            for key, value in tree.items()
        }

    def leaf(like: Any, path: tuple[str, ...]) -> Any:
        value = state[".".join([*path[:-1], names[path[-1]]])]
        if path[-1] == "kernel":
            value = _kernel(value, path[0], before_flatten)
        assert value.shape == like.shape, path
        return jnp.asarray(value)

    return {collection: fill(tree, ()) for collection, tree in variables.items()}


def keras_arrays(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Copies of a Keras model's weights and statistics, by their paths."""
    return {variable.path: np.array(variable) for variable in model.weights}


def into_keras(model: nn.Module, keras_model: Any, before_flatten: tuple[int, int, int] = (0, 0, 0)) -> None:
    """Set the weights of a Keras model to those of a torch model; arguments as in `from_torch`."""
    # A block's layers have its name in front: "stage1_block1_conv1", in PyTorch "stage1_block1.conv1".
    layers: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    for name, value in _arrays(model).items():
        layer, _, field = name.rpartition(".")
        layers.setdefault(layer.replace(".", "_"), {})[field] = value
    names = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
    names |= {"moving_mean": "running_mean", "moving_variance": "running_var"}
    for variable in keras_model.weights:
        layer, field = variable.path.split("/")
        value = layers[layer][names[field]]
        # Raises where the shape is another.
        variable.assign(_kernel(value, layer, before_flatten) if field == "kernel" else value)


def gluon_arrays(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    """A torch model's weights under the names of MXNet's Gluon; they lie in the same order."""
    names = {"weight": "gamma", "bias": "beta"}
    found = {}
    for name, value in _arrays(model).items():
        layer, _, field = name.rpartition(".")
        if field != "num_batches_tracked":
            found[f"{layer}.{names.get(field, field) if layer.rpartition('.')[2].startswith('bn') else field}"] = value
    return found


def _arrays(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    # Copies: JAX may go on using the memory itself, while the torch model changes what is in it.
    return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


def _kernel(value: np.ndarray[Any, Any], layer: str, before_flatten: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """A layer's torch weight, as Flax and Keras lay it out."""
    if value.ndim == 4:
        return value.transpose(2, 3, 1, 0)  # from [out, in, H, W] to [H, W, in, out]
    value = value.T
    if layer == "fc1" and len(value) == np.prod(before_flatten):
        height, width, channels = before_flatten
        value = value.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(value.shape)
    return value
