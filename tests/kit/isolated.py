"""Interpreters that have some packages of this one, and no others."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def isolated(directory: Path, *distributions: str) -> str:
    """Make a virtual environment with links to installed distributions and to all that they require; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in _with_requirements(distributions):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return str(directory / "bin" / "python")


def _with_requirements(names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    left = [*names]
    while left:
        name = left.pop()
        try:
            wanted = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            left += [re.split(r"[^\w.-]", one)[0] for one in wanted if "extra ==" not in one]
    return found
