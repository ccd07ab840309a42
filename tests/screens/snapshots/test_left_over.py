"""Every picture belongs to a test, and every such test, slow ones included, has its picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def test_no_picture_is_left_over_and_none_is_missing() -> None:
    # In a process of its own, because this one may have been told to run a part of the suite only.
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", str(HERE)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    tests = re.findall(r"^tests/screens/snapshots/(test_\w+_snapshots)\.py::(.+)$", listed.stdout, flags=re.MULTILINE)
    assert tests, listed.stdout + listed.stderr
    wanted = {f"{file}/{name}.txt" for file, name in tests}
    stored = {str(path.relative_to(HERE / "__snapshots__")) for path in (HERE / "__snapshots__").rglob("*.*")}
    assert sorted(stored - wanted) == [], "of no test; delete them"
    assert sorted(wanted - stored) == [], "not made yet: pytest tests/screens/snapshots -m '' --snapshot-update"
