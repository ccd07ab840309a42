"""Each import contract finds what it forbids: one that names its rooms wrongly would be kept whatever is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.kit import ROOT

PLANTED = {
    "Trainers: each room imports only those below it": ("trainers.tasks.low", "tuiapp.trainers.config.options"),
    "The terminal program: each room imports only those below it": ("terminal.low", "tuiapp.library.find"),
    "The terminal program imports no training framework, not even transitively": ("view.trains", "torch"),
    "The terminal program knows the configuration, what runs leave, and the launcher": (
        "feeds.runs", "tuiapp.trainers.run.wire",
    ),
    "Trainers know nothing of the terminal": ("trainers.sources.draws", "rich"),
    "Other people's trainers are for their adapters and examples alone": ("widgets.adapts", "lightning"),
    "Tasks, configuration, contract and state stand on no framework": ("trainers.state.downloads", "pooch"),
    "What is drawn is drawn without Textual": ("view.draws", "textual"),
    "An action knows neither screens nor the command line": ("actions.parses", "argparse"),
    "The sampler imports configuration and contract alone: it starts fast and stays small": (
        "trainers.telemetry.large", "numpy",
    ),
    "The supervisor and what it starts beside ranks import no framework": ("trainers.run.trains", "torch"),
    "Backends know no other backend": ("trainers.backends.new", "tuiapp.trainers.backends.torch_dp"),
    "A framework's room knows no other framework's": (
        "trainers.frameworks.torch.other", "tuiapp.trainers.frameworks.jax",
    ),
    "The backends of Keras import neither Flax nor Optax": ("trainers.backends.keras_jax", "optax"),
    "MXNet's process imports no other framework": ("trainers.backends.mxnet_gluon", "optax"),
    "MXNet is for its backend alone": ("trainers.script.gluon", "mxnet"),
    "Keras is for the Keras backends alone": ("trainers.rank.layers", "keras"),
}  # fmt: skip
"""Contract → a module, new or there, and what is imported in it."""


def report(tree: Path) -> dict[str, str]:
    """Contract → what import-linter says of those that are broken."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    _, _, broken = done.stdout.partition("Broken contracts\n")
    lines, found, name = broken.splitlines(), dict[str, str](), ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"} and line.strip() and set(line) != {"-"}:
            name = line
        elif name:
            found[name] = f"{found.get(name, '')}{line}\n"
    assert found, done.stdout + done.stderr
    return found


def test_each_finds_what_is_planted(tmp_path: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert [contract["name"] for contract in contracts] == [*PLANTED]
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tuiapp", tmp_path / "tuiapp", symlinks=True)
    shutil.copytree(ROOT / "trainers", tmp_path / "trainers")
    for module, forbidden in PLANTED.values():
        with (tmp_path / "tuiapp" / module.replace(".", "/")).with_suffix(".py").open("a") as file:
            file.write(f"\nimport {forbidden}\n")
    found = report(tmp_path)
    for name, (module, forbidden) in PLANTED.items():
        assert f"tuiapp.{module} -> {forbidden} " in found.get(name, ""), f"{name}: {found.get(name)}"
        others = {other for other, _ in PLANTED.values() if f"tuiapp.{other} " in found[name]}
        assert others == {module}, found[name]
