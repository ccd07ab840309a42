"""The arrays in a JAX tree by name, as a checkpoint stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt


def named_leaves(tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Copies of a tree's arrays on the host, under the dotted names of their paths."""
    # A view of an array whose buffer the next step takes over would change while it is read.
    return {leaf_name(path): np.array(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def fill(tree: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Fills a tree with arrays of `named_leaves`; raises ValueError if one is missing, or has another shape."""

    def leaf(path: tuple[Any, ...], like: Any) -> npt.NDArray[Any]:
        array = arrays.get(leaf_name(path))
        if array is None or array.shape != like.shape:
            found = "missing" if array is None else f"of shape {array.shape}, not {like.shape}"
            raise ValueError(f"the checkpoint does not fit: {leaf_name(path)} is {found}")
        return array.astype(like.dtype)

    return jax.tree_util.tree_map_with_path(leaf, tree)


def leaf_name(path: tuple[Any, ...]) -> str:
    """The keys of a path in a tree, joined by dots."""
    return ".".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)
