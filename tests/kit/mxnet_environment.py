"""The interpreter that MXNet's ranks run in, as `tuiapp env create mxnet` makes it: once per machine and user."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tuiapp.trainers.config.catalog import BACKENDS

# A test has a home of its own; this is the user's.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuiapp-tests"
CREATE = (sys.executable, "-P", "-m", "tuiapp", "env", "create", "mxnet")


def interpreter_of(backend: str) -> str:
    """The interpreter that a backend's ranks run in; "" for this one. Skips the test if it cannot be made."""
    return str(mxnet_python()) if "mxnet" in BACKENDS[backend].packages else ""


def mxnet_python() -> Path:
    """The interpreter with MXNet; skips the test if it cannot be made."""
    place, why = _make()
    if why:
        pytest.skip(why)
    return place / "bin" / "python"


@cache
def _make() -> tuple[Path, str]:
    place = CACHE / "tuiapp" / "environments" / "mxnet"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "mxnet.lock", "w") as lock:
        # Others that test at the same time wait for the one that makes it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / "complete").exists():
            return place, ""
        environment = {**os.environ, "XDG_DATA_HOME": str(CACHE)}
        done = subprocess.run(CREATE, env=environment, capture_output=True, text=True, check=False)
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return place, f"no interpreter with MXNet could be made: {last}" if done.returncode else ""
