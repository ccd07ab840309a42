"""A backend whose framework is not installed: refused before anything starts, with the command that installs it.

The programs run in an environment that lacks the package for real: it has all that this one has, but for that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import tuiapp
from tests.kit.command_line import Done

Program: TypeAlias = Callable[..., Done]
"""A `tuiapp` command, run without some package."""

BRINGS = {
    "torch": ("torch", "torchgen", "functorch"),
    "jax": ("jax", "jaxlib"),
    "keras": ("keras",),
    "flax": ("flax",),
    "mxnet": ("mxnet",),
}
"""Package → what of it lies in an environment's directory; `torch-2.11.0.dist-info` and the like go as well."""


@pytest.fixture
def without(tmp_path: Path, runs_dir: Path) -> Callable[[str], Program]:
    """Makes an environment without a package."""

    def make(package: str) -> Program:
        place = tmp_path / f"without-{package}"
        venv.create(place / "env", symlinks=True)
        packages = place / "packages"
        packages.mkdir()
        for found in installed():
            if found.name.split("-")[0] not in BRINGS[package]:
                (packages / found.name).symlink_to(found)
        (listing,) = (place / "env" / "lib").glob("python*/site-packages")
        source = Path(tuiapp.__file__).parents[1]
        (listing / "shared.pth").write_text(f"{packages}\n{source}\n")

        def run(*arguments: object) -> Done:
            command = [str(place / "env" / "bin" / "python"), "-P", "-m", "tuiapp", *map(str, arguments)]
            own = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
            done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, env=own)
            return Done(done.returncode, done.stdout, done.stderr)

        return run

    return make


def installed() -> list[Path]:
    """All that lies in the directories of packages that this interpreter looks into, the first of each name."""
    found: dict[str, Path] = {}
    for directory in map(Path, sys.path):
        if directory.name == "site-packages":
            for path in directory.iterdir():
                if path.suffix != ".pth":
                    found.setdefault(path.name, path)
    return list(found.values())


def slow(backend: str, package: str, extra: str) -> object:
    return pytest.param(backend, package, extra, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("backend", "package", "wanted"),
    [
        ("torch-ddp", "torch", "pip install 'torch<"),
        slow("torch-dp", "torch", "pip install 'torch<"),
        slow("jax-sharding", "flax", "pip install 'filelock"),
        slow("jax-pmap", "jax", "pip install 'filelock"),
        slow("keras-jax", "keras", "pip install 'keras<"),
        slow("keras-torch", "torch", "pip install 'keras<"),
        slow("mxnet-gluon", "mxnet", "tuiapp env create mxnet"),
    ],
)
def test_it_is_refused(
    without: Callable[[str], Program], runs_dir: Path, home: Path, backend: str, package: str, wanted: str
) -> None:
    before = sorted(home.rglob("*"))
    done = without(package)("run", "quickstart", "--set", f"backend={backend}", "--json")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith(f"tuiapp: backend: {backend} cannot run here: {package} not installed: ")
    assert wanted in line
    assert sorted(home.rglob("*")) == before
    assert not runs_dir.exists()
    print(f"\n{line}")
