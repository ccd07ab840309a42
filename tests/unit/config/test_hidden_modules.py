"""Files beside a script that hide what it needs are named before anything starts; all others are left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script import USED_BY, check_hidden


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has nothing installed: what this one has may import modules before a script runs."""
    directory = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return str(directory / "bin" / "python")


def script(directory: Path, text: str, *beside: str, name: str = "train.py") -> RunConfig:
    for file in beside:
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text("")
    (directory / name).write_text(text)
    return RunConfig(backend="script", script=str(directory / name), working_directory=str(directory))


def said(config: RunConfig, python: str) -> list[str]:
    return [problem.message for problem in check_hidden(config, python)]


@pytest.mark.parametrize(
    ("text", "package", "file", "module"),
    [
        ("import torch", "torch", "types.py", "types"),
        ("from torch import nn", "torch", "queue.py", "queue"),
        ("def main():\n    import jax.numpy", "jax", "secrets.py", "secrets"),
        ("import tuiapp", "tuiapp", "uuid/__init__.py", "uuid"),
    ],
)
def test_one_that_hides_a_module_of_pythons_own(
    tmp_path: Path, bare: str, text: str, package: str, file: str, module: str
) -> None:
    message = f"{tmp_path / file} hides Python's own module {module}, which {package} needs: rename it."
    assert said(script(tmp_path, text, file), bare) == [message]


def test_the_script_itself(tmp_path: Path, bare: str) -> None:
    (message,) = said(script(tmp_path, "import torch", name="random.py"), bare)
    assert message.startswith(f"{tmp_path / 'random.py'} hides Python's own module random")


@pytest.mark.parametrize("file", ["tuiapp.py", "tuiapp/__init__.py"])
def test_one_that_hides_this_package(tmp_path: Path, bare: str, file: str) -> None:
    config = script(tmp_path, "import tuiapp", file)
    assert said(config, bare) == [f"{tmp_path / file} hides the package tuiapp, which the script imports: rename it."]
    assert said(script(tmp_path, "import torch"), bare) == []


def test_a_copy_of_this_package_is_none(tmp_path: Path, bare: str) -> None:
    assert said(script(tmp_path, "import tuiapp", "tuiapp/__init__.py", "tuiapp/trainers"), bare) == []


def test_what_hides_nothing(tmp_path: Path, bare: str) -> None:
    harmless = ("config.py", "trainers.py", "tests/__init__.py", "time.py", "os.py", "queue/data.py", "calendar.py")
    assert said(script(tmp_path, "import torch, jax, tuiapp", *harmless), bare) == []
    # Nothing of torch's, JAX's or ours is in its process.
    assert said(script(tmp_path, "print(1)", "types.py", "queue.py"), bare) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "package", ["torch", "jax", "tuiapp.trainers.script.client, tuiapp.trainers.script.jobs, tuiapp.trainers.launch"]
)
def test_each_that_is_refused_is_needed(package: str) -> None:
    command = [sys.executable, "-c", f"import {package}, sys; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {*USED_BY[package.partition(".")[0]].split()} <= {*loaded}
