"""Packages that pip and uv install without a network."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from tuiapp.library.environments import RECIPES, Recipe


def make_wheel(directory: Path, name: str, version: str) -> None:
    """Write a wheel with an empty module of that name."""
    directory.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)


def offline(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Path:
    """Has pip, not uv, find what the recipe for torch then names in a directory, and nowhere else."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name, version in (("torch", "2.13.0"), ("numpy", "2.4.6"), ("msgspec", "0.22.0")):
        make_wheel(directory, name, version)
    monkeypatch.setitem(RECIPES, "torch", Recipe(("torch==2.13.0", "numpy==2.4.6", "msgspec==0.22.0"), (1, 1)))
    return directory
