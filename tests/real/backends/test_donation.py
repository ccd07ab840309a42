"""Steps that write into the state before them, as on GPUs, with many under way: the same to the last bit."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import numpy as np
import pytest

from tests.kit.recorder import JAX_BACKENDS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.rank.loop import STEPS_IN_FLIGHT

pytestmark = pytest.mark.nightly


def _trained(backend: str) -> tuple[Recorder, Shelf]:
    shelf = Shelf()
    config = RunConfig(
        backend=backend, model="net", platform="cpu", devices=2, epochs=2, max_steps=40, ema=0.9, checkpoint_every=0
    )
    return train(config, save_at=10, shelf=shelf), shelf


@pytest.mark.parametrize("backend", mostly_by_hand(JAX_BACKENDS, "jax-sharding"))
def test_donated_states_with_steps_in_flight(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, kept = _trained(backend)
    assert plain.step_memory is not None
    assert plain.step_memory.aliased == 0
    waits: list[Any] = []

    def wait(result: Any) -> None:
        waits.append(result)
        jax.block_until_ready(result)

    module = importlib.import_module(BACKENDS[backend].module)
    monkeypatch.setattr(module, "donated", lambda config: (0,))
    monkeypatch.setattr(module, "steps_in_flight", lambda config: {"wait": wait, "limit": STEPS_IN_FLIGHT})
    told, shelf = _trained(backend)
    assert told.step_memory is not None
    assert told.step_memory.outputs - told.step_memory.aliased < 1 << 14
    assert waits
    assert told.losses() == plain.losses()
    assert told.evaluations == plain.evaluations
    # What is saved must not change with the steps after it.
    for mine, theirs in ((shelf.saved[10].model, kept.saved[10].model), (shelf.saved[10].state, kept.saved[10].state)):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert all(np.array_equal(shelf.exported[name], kept.exported[name]) for name in kept.exported)
