"""The planted faults: each patch fits the program as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bench.faults.__main__ import PATCHES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: str(patch.stem))
def test_it_applies(patch: Path) -> None:
    words = ["git", "apply", "--check", "--include=trainers/*", "--include=tuiapp/*", str(patch)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    named = patch.read_text().partition("Tests: ")[2].partition("\n")[0].split()
    assert [name for name in named if not (ROOT / name).exists()] == []
