"""Copies of a GPU's tensors for a checkpoint, with stand-ins for its streams: a copy is as of when it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from tuiapp.trainers.frameworks.torch.copies import stage, to_host
from tuiapp.trainers.rank.tensor_files import as_float32

pytestmark = pytest.mark.nightly


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the streams were told, in its order."""
    told: list[str] = []

    @contextmanager
    def on(stream: Any) -> Iterator[None]:
        told.append("copy")
        yield

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "steps")
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append("keep"))
    return told


def test_what_is_staged_is_what_was_and_one_copy_a_type(told: list[str]) -> None:
    dice = np.random.default_rng(0)
    weight = torch.from_numpy(dice.random((4, 3, 2, 2), np.float32)).contiguous(memory_format=torch.channels_last)
    half = torch.from_numpy(dice.random((5,), np.float32)).bfloat16()
    tensors = {"weight": weight, "half": half, "step": torch.tensor(7.0), "count": torch.tensor([1, 2]), "bias": -half}
    wanted = {name: as_float32(array) for name, array in to_host(tensors, None).items()}
    copies = SimpleNamespace(device="cuda", wait_stream=lambda stream: told.append(f"after {stream}"))
    found = stage(tensors, cast(torch.cuda.Stream, copies))
    # The next update.
    for tensor in tensors.values():
        tensor.fill_(0)
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(as_float32(array), wanted[name], err_msg=name)
        assert (array.shape, array.flags.c_contiguous) == (tuple(tensors[name].shape), True)
    assert told == ["after steps", "copy", "keep"] * 3
