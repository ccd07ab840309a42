"""Many small tensors as one: one collective, or one copy, in place of many that each wait for the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

Key = TypeVar("Key")


def by_type(tensors: Mapping[Key, Tensor]) -> Iterable[dict[Key, Tensor]]:
    """Groups tensors by type, in their order: one tensor can hold those of a type."""
    found: dict[torch.dtype, dict[Key, Tensor]] = {}
    for key, tensor in tensors.items():
        found.setdefault(tensor.dtype, {})[key] = tensor
    return found.values()


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """Copies of all values of tensors of one type and device, one after the other, the last axis the densest."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
