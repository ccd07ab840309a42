"""Steps that are profiled compute what they would have computed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.backends import recorder
from tests.backends.test_accumulate import CONFIG


@pytest.mark.parametrize(("backend", "devices"), [("jax-sharding", 2), ("torch-dp", 1)])
def test_the_losses_are_the_same(backend: str, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, devices=devices)
    plain = recorder.train(config)
    monkeypatch.setattr(recorder.Recorder, "profile_at", (5, 4))
    monkeypatch.setattr(recorder.Recorder, "profiles", tmp_path / "profiles")
    profiled = recorder.train(config)
    assert [(one.rank, one.step, one.steps) for one in profiled.profiled] == [(rank, 5, 4) for rank in range(devices)]
    assert profiled.losses() == plain.losses()
