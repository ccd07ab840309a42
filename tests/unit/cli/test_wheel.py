"""The wheel: it holds all that the program needs beside its code, and trains from another directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.kit import ROOT
from tuiapp.library import manual


def test_a_built_wheel_trains_elsewhere(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    pages = {f"tuiapp/manual/{topic}.md" for topic in manual.TOPICS}
    presets = {str(path.relative_to(ROOT)) for path in (ROOT / "tuiapp/library/builtin_presets").glob("*.toml")}
    digits = {str(path.relative_to(ROOT)) for path in (ROOT / "tuiapp/trainers/sources").glob("*.npz")}
    assert presets
    assert digits
    assert pages | presets | digits <= names
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TUIAPP_RUNS_DIR": str(tmp_path / "runs")}
    where = [sys.executable, "-c", "import tuiapp, tuiapp.trainers; print(tuiapp.__file__, tuiapp.trainers.__file__)"]
    told = subprocess.run(where, cwd=elsewhere, env=environment, check=True, capture_output=True, text=True).stdout
    assert all(file.startswith(str(tmp_path / "site")) for file in told.split())
    run = [sys.executable, "-m", "tuiapp", "run", "quickstart", "--set", "epochs=1", "--set", "devices=1", "--json"]
    done = subprocess.run(run, cwd=elsewhere, env=environment, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["steps"]) == ("completed", 29)
