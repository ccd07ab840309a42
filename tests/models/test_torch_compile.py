"""What torch.compile has made does not fill the disk."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

from trainers.torch_compile import IN_USE_S, limit_kept


def _write(path: Path, size: int, days_ago: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    used = time() - days_ago * 24 * 3600
    os.utime(path, (used, used))
    return path


def test_what_was_unused_for_longest_goes_first(tmp_path: Path) -> None:
    oldest = _write(tmp_path / "aa" / "kernel.so", 600, 9)
    older = _write(tmp_path / "bb" / "kernel.so", 600, 5)
    recent = _write(tmp_path / "cc" / "kernel.so", 600, 2)
    limit_kept(tmp_path, 1300)
    assert [path.exists() for path in (oldest, older, recent)] == [False, True, True]
    limit_kept(tmp_path, 1300)
    assert older.exists()


def test_what_may_be_in_use_stays(tmp_path: Path) -> None:
    assert IN_USE_S >= 3600
    paths = [_write(tmp_path / str(number), 600, 0) for number in range(3)]
    limit_kept(tmp_path, 0)
    assert all(path.exists() for path in paths)
    limit_kept(tmp_path / "missing", 0)
