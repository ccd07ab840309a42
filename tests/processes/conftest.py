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
