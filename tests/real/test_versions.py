"""The quickstart on every backend, in every named interpreter: `TUIAPP_TEST_PYTHONS=PATH:PATH pytest -m nightly`.

An interpreter is of any supported version, and has any versions of the frameworks: the newest of all that pass are
`NEWEST_TESTED`. One that has what tuiapp itself needs runs all of it; in the others there are the ranks alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import ROOT
from tuiapp.trainers.config.catalog import BACKENDS, PACKAGES
from tuiapp.trainers.config.installed import inspect_packages
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.by_hand

VARIABLE = "TUIAPP_TEST_PYTHONS"
OF_TUIAPP = ("textual", "psutil", "tomlkit", "pooch")
LIMIT_S = 900
"""What the slowest takes on a loaded machine; alone none takes more than 90 s on two cores."""

NAMED = [python for python in os.environ.get(VARIABLE, "").split(os.pathsep) if python]
NONE = pytest.param("", marks=pytest.mark.skip(reason=f"{VARIABLE} names no interpreters that have the frameworks"))


@pytest.mark.by_hand
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("backend", [name for name, backend in BACKENDS.items() if backend.builtin])
@pytest.mark.parametrize("python", NAMED or [NONE])
def test_the_quickstart(python: str, backend: str, runs_dir: Path) -> None:
    found = inspect_packages(python, (*PACKAGES, *OF_TUIAPP))
    assert not found.problem, f"{python}: {found.problem}"
    if reason := BACKENDS[backend].unavailable(found):
        pytest.skip(reason)
    whole = all(map(found.has, OF_TUIAPP))
    settings = [f"backend={backend}", *([] if whole else [f"python={python}"])]
    command = [python if whole else sys.executable, "-P", "-m", "tuiapp", "run", "quickstart", "--json"]
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--runs-dir", runs_dir],
        capture_output=True,
        text=True,
        env=environment,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    versions = ", ".join(f"{name} {found.version_of(name)}" for name in (*BACKENDS[backend].packages, "numpy"))
    accuracy, seconds = result["test_accuracy"], result["seconds"]
    print(f"\n| {found.version} | {backend} | {versions} | {result['status']} | {accuracy:.1%} | {seconds:.0f} |")
    assert result["status"] == "completed"
    assert accuracy >= 0.95
    # No warning, of a deprecated name for instance.
    logs = RunDir(Path(result["directory"])).path.glob("ranks/*/stderr.log")
    assert {path: path.read_text() for path in logs if path.stat().st_size} == {}
