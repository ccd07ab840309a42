"""The program as it is installed: the tree, the unpacked sdist, a wheel made from that, an editable install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

from tests.kit import ROOT
from tests.kit.isolated import isolated

KINDS = ("tree", "sdist", "wheel", "editable")


@dataclass(frozen=True)
class Install:
    """An interpreter that has tuiapp, and all that this one has for it."""

    python: str
    environment: Mapping[str, str]
    package: Path
    """Where tuiapp is imported from."""

    def run(
        self, *arguments: str, cwd: Path, variables: Mapping[str, str] | None = None, safe: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs the interpreter; `safe` keeps the directory of what it runs off the search path, as commands do."""
        environment = {**os.environ, **self.environment, **(variables or {})}
        command = [self.python, *(["-P"] if safe else []), *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Built:
    sdist: Path
    """The unpacked one."""
    wheel: Path
    """Made from it."""


def build(directory: Path) -> Built:
    """Builds the tree's sdist, and from that the wheel."""
    _hatchling("sdist", ROOT, directory)
    with tarfile.open(next(directory.glob("*.tar.gz"))) as archive:
        archive.extractall(directory / "unpacked", filter="data")
    (sdist,) = (directory / "unpacked").iterdir()
    _hatchling("wheel", sdist, directory)
    return Built(sdist, next(directory.glob("*.whl")))


def _hatchling(target: str, tree: Path, directory: Path) -> None:
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


def install(kind: str, directory: Path, built: Built) -> Install:
    """Makes an interpreter that has one of KINDS."""
    needed = [re.split(r"[^\w.-]", one)[0] for one in requires("tuiapp") or () if "extra ==" not in one]
    python = isolated(directory, *needed, "torch", "hatchling")
    if kind in ("tree", "sdist"):
        tree = ROOT if kind == "tree" else built.sdist
        return Install(python, {"PYTHONPATH": str(tree)}, tree / "tuiapp")
    (site,) = directory.glob("lib/python*/site-packages")
    what = ["--editable", str(ROOT)] if kind == "editable" else [str(built.wheel)]
    command = [sys.executable, "-P", "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-build-isolation", *what], check=True, capture_output=True, cwd=directory)
    return Install(python, {}, (ROOT / ".editable" if kind == "editable" else site) / "tuiapp")
