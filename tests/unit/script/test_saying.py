"""What a script is told."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import pytest

import tuiapp


def test_a_full_disk_under_stderr_stops_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", full)
    with pytest.raises(OSError, match="No space left"):
        print("as a script's own line", file=sys.stderr)
    tuiapp.nothing_of_that_name()
    with suppress(OSError):
        full.close()
