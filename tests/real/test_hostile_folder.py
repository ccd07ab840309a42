"""Modules in the user's folder, called as ours, as Python's own or as this package, work or are refused in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.installs import KINDS, Built, Install, build, install
from tests.kit.variants import mostly_by_hand
from tuiapp.library.find import list_runs
from tuiapp.trainers.state.summary import summarise

NET = """
from config import WIDTH
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))
"""
OWN = {
    "trainers/__init__.py": "MINE = True",
    "trainers/net.py": NET,
    "tests/__init__.py": "MINE = True",
    "config.py": "WIDTH = 16",
    "tuiapp/README.md": "",
}
"""Called as parts of this package are, and as many of the users' own; and a clone's directory."""
LIKE_PYTHONS = dict.fromkeys(("secrets.py", "statistics.py", "calendar.py", "code.py", "copy.py", "profile.py"), "")
"""Called as modules without which a script that reports can be."""
BREAKING = {name: f"raise RuntimeError('own {name}')" for name in ("types.py", "queue.py", "tuiapp.py")}

SCRIPT = """
import config, tests, trainers, tuiapp
assert trainers.MINE and tests.MINE
tuiapp.init(name="mine", config={"width": config.WIDTH})
tuiapp.log({"loss": 0.5}, step=1)
"""
MODEL = """
import tests, trainers
from torch import nn
from trainers.net import build
assert trainers.MINE and tests.MINE

def net(shape, classes):
    return build(shape, classes)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""
DATA = """
import config, tests, trainers
import numpy as np
assert trainers.MINE and tests.MINE and config.WIDTH

def data():
    x, y = np.random.default_rng(0).random((96, 8, 8, 1), np.float32), np.arange(96) % 10
    return x, y, x, y
"""
BUILTIN = (
    "--set", "model=py:mine.py:net", "--set", "dataset=py:data.py:data", "--set", "platform=cpu", "--set", "devices=1",
    "--set", "epochs=1", "--set", "global_batch_size=48",
)  # fmt: skip


def fill(folder: Path, *several: dict[str, str]) -> Path:
    for files in several:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module", params=mostly_by_hand(KINDS, "wheel", "editable"))
def installed(request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Install:
    return install(request.param, tmp_path_factory.mktemp("venv"), built)


def completed(runs_dir: Path) -> None:
    (run,) = list_runs(runs_dir)
    assert run.wait_until_over(30)
    info = summarise(run)
    assert info.status == "completed", info.reason


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("types.py", "hides Python's own module types, which torch needs: rename it."),
        ("queue.py", "hides Python's own module queue, which torch needs: rename it."),
        ("tuiapp.py", "hides the package tuiapp, which the script imports: rename it."),
    ],
)
def test_what_breaks_it_is_refused(file: str, words: str, installed: Install, tmp_path: Path) -> None:
    text = f"import torch{SCRIPT}"
    folder = fill(tmp_path / "folder", OWN, {file: BREAKING[file], "train.py": text})
    variables = {"TUIAPP_RUNS_DIR": str(tmp_path / "runs")}
    done = installed.run("-m", "tuiapp", "run", "train.py", cwd=folder, variables=variables)
    assert (done.returncode, done.stderr) == (2, f"tuiapp: script: {folder / file} {words}\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("search_path", mostly_by_hand(["", "."], ""))
def test_a_model_a_loss_and_data(search_path: str, installed: Install, tmp_path: Path) -> None:
    # On PYTHONPATH such files would break Python itself.
    more = {} if search_path else LIKE_PYTHONS | BREAKING
    folder = fill(tmp_path / "folder", OWN, more, {"mine.py": MODEL, "data.py": DATA})
    path = os.pathsep.join(filter(None, (search_path, installed.environment.get("PYTHONPATH", ""))))
    variables = {"TUIAPP_RUNS_DIR": str(tmp_path / "runs"), **({"PYTHONPATH": path} if path else {})}
    done = installed.run("-m", "tuiapp", "run", *BUILTIN, cwd=folder, variables=variables)
    assert done.returncode == 0, done.stderr
    completed(tmp_path / "runs")
