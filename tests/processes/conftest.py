from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FAULTS = Path(__file__).with_name("faults")


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a rank of the runs launched from now on misbehave: `KIND:RANK:STEP`."""

    def set_fault(text: str) -> None:
        monkeypatch.setenv("PYTHONPATH", str(FAULTS))
        monkeypatch.setenv("TUIAPP_TEST_FAULT", text)

    return set_fault


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs launched from now on train with `faults/fake_backend.py` in the place of torch-ddp; takes its seconds."""

    def set_fake(fault: str = "", **seconds: float) -> None:
        monkeypatch.setenv("PYTHONPATH", str(FAULTS))
        monkeypatch.setenv("TUIAPP_TEST_BACKEND", "fake")
        if fault:
            monkeypatch.setenv("TUIAPP_TEST_FAULT", fault)
        for name, value in seconds.items():
            monkeypatch.setenv(f"TUIAPP_TEST_{name.upper()}_S", str(value))

    return set_fake
