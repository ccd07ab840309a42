"""Moves a torch model's weights into the Flax model of the same name."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from torch import nn


def from_torch(model: nn.Module, variables: dict[str, Any], before_flatten: tuple[int, int, int]) -> dict[str, Any]:
    """The Flax variables that hold what a torch model holds.

    Args:
        model: Whose weights.
        variables: Of the Flax model: names and shapes.
        before_flatten: Height, width and channels of what "fc1" sees flattened. PyTorch flattens it channels first.
    """
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    names = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}

    def fill(tree: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        return {
            key: fill(value, (*path, key)) if isinstance(value, dict) else leaf(value, (*path, key))
            for key, value in tree.items()
        }

    def leaf(like: Any, path: tuple[str, ...]) -> Any:
        value = state[".".join([*path[:-1], names[path[-1]]])]
        if path[-1] == "kernel" and value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)  # from [out, in, H, W] to [H, W, in, out]
        elif path[-1] == "kernel":
            value = value.T
            if path[0] == "fc1" and len(value) == np.prod(before_flatten):
                height, width, channels = before_flatten
                value = value.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(like.shape)
        assert value.shape == like.shape, path
        return jnp.asarray(value)

    return {collection: fill(tree, ()) for collection, tree in variables.items()}
