"""Ranks run our tuiapp, whatever their interpreter has under that name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuiapp
from tuiapp.trainers.config import bootstrap

TELL = """
import sys, tuiapp, tuiapp.trainers.config.options as options
print(tuiapp.__file__, options.__file__, *sys.argv[1:])
"""


@pytest.mark.parametrize("where", ["installed", "on PYTHONPATH", "in the working directory"])
def test_it_beats_another_one(where: str, tmp_path: Path) -> None:
    """The other is of before 0.3, when `trainers` was a package beside it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    place = site if where == "installed" else tmp_path
    for name in ("tuiapp", "trainers"):
        (place / name).mkdir()
        (place / name / "__init__.py").write_text("raise ImportError('the other one')")
    (site / "tell.py").write_text(TELL)
    given = {"PYTHONPATH": str(tmp_path)} if where == "on PYTHONPATH" else {}
    environment = {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **given}
    command = bootstrap.command(str(tmp_path / "venv/bin/python"), "tell", "1", "2")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    ours = Path(tuiapp.__file__).parent
    told = [str(ours / "__init__.py"), str(ours / "trainers/config/options.py"), "1", "2"]
    assert done.stdout.split() == told, done.stderr
