"""The interpreter that MXNet's ranks run in: made once per machine and user, as it needs an older NumPy than tuiapp."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from trainers.config.catalog import BACKENDS

PYTHON = "python3.11"
"""The newest for which NumPy 1.23.5 has wheels."""
PACKAGES = ("mxnet==1.9.1", "numpy==1.23.5", "msgspec>=0.19", "safetensors>=0.5", "platformdirs>=4", "pooch>=1.8")
# A test has a home of its own; this is the user's.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tuiapp-tests"


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
    place = CACHE / "-".join(name.replace("==", "-").replace(">=", "-") for name in PACKAGES)
    found = shutil.which(PYTHON)
    if found is None:
        return place, f"MXNet 1.9.1 needs {PYTHON}, which is not on the path"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "mxnet.lock", "w") as lock:
        # Others that test at the same time wait for the one that makes it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = place / "made"
        if made.exists():
            return place, ""
        for command in (
            [found, "-m", "venv", "--clear", str(place)],
            [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
                return place, f"no interpreter with MXNet could be made: {command[1:4]}: {last}"
        made.touch()
    return place, ""
