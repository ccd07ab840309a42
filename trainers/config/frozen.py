"""Which parameters the key `freeze` names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from tuiapp.trainers.config.catalog import BACKENDS


def patterns_of(freeze: str) -> list[str]:
    """Returns the patterns for names that the key lists."""
    return [pattern for pattern in re.split(r"[,\s]+", freeze) if pattern]


def matching(pattern: str, names: Iterable[str], prefix: str = "") -> set[str]:
    """Returns those of the names that a pattern names, with or without the `prefix`."""
    return {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(prefix + name, pattern)}


def frozen_weights(backend: str, freeze: str, weights: Iterable[str]) -> set[str]:
    """Returns those of a catalog model's weights that `freeze` names, as the backend's framework calls them."""
    weight_of = {own_name(backend, name): name for name in weights}
    prefix = "params." if BACKENDS[backend].framework == "jax" else ""
    found = set().union(*(matching(pattern, weight_of, prefix) for pattern in patterns_of(freeze)))
    return {weight_of[name] for name in found}


def own_name(backend: str, name: str) -> str:
    """What a backend's framework calls a weight of the catalog, which has Flax's names: `conv1.kernel`."""
    known = BACKENDS[backend]
    layer, _, kind = name.rpartition(".")
    of_norm = re.match(r"(bn|norm)\d*$", layer.rpartition(".")[2]) is not None
    if known.keras_backend or known.engine == "mxnet":
        kind = {"scale": "gamma", "bias": "beta"}.get(kind, kind) if of_norm else kind
    if known.keras_backend:
        return f"{layer.replace('.', '_')}/{'embeddings' if kind == 'embedding' else kind}"
    return name if known.engine == "jax" else f"{layer}.{'weight' if kind in WEIGHT else kind}"


WEIGHT = ("kernel", "scale", "embedding")
"""Kinds that PyTorch and MXNet call "weight"."""
