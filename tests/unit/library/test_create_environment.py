"""Environments made, interrupted and removed: with the real venv and pip, on packages of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.waiting import wait_until
from tests.kit.wheels import offline
from tuiapp.library.environments import RECIPES, CancelledError, CreateError, create, describe, log_path, remove
from tuiapp.trainers.config.catalog import NEWEST_TESTED, is_newer_than_tested
from tuiapp.trainers.config.interpreters import environments_dir, find_interpreter, why_not

TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]


def quiet(line: str, size: int) -> None:
    """Nobody watches."""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return offline(monkeypatch, tmp_path / "wheels")


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installer that says something and does not end; the file that has its pid."""
    told = tmp_path / "pid"
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\necho $$ > {told}; echo Downloading the world; exec sleep 600\n")
    uv.chmod(0o700)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    yield told
    if told.exists() and psutil.pid_exists(pid := int(told.read_text())):
        os.kill(pid, signal.SIGKILL)


def wait_for(file: Path, process: subprocess.Popen[str] | None = None) -> int:
    def is_there() -> bool:
        assert process is None or process.poll() is None, process.communicate()
        return file.exists() and bool(file.read_text().strip())

    wait_until(is_there)
    return int(file.read_text())


def wait_dead(pid: int) -> None:
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 30)


def left() -> list[str]:
    return sorted(path.name for path in environments_dir().iterdir() if not path.name.startswith("."))


@pytest.mark.by_hand
def test_one_is_made_used_and_removed(wheels: Path) -> None:
    said: list[str] = []
    directory = create("torch", lambda line, size: said.append(line))
    assert any(line.startswith("Successfully installed") for line in said)
    assert "Successfully installed" in log_path("torch").read_text()
    found = find_interpreter("torch-ddp")
    assert (found.python, found.origin) == (str(directory / "bin" / "python"), "created")
    assert found.inspect().packages == {"msgspec": "0.22.0", "numpy": "2.4.6", "torch": "2.13.0"}
    assert why_not("torch-ddp", found) == ""
    assert not (directory / "tmp").exists()
    with pytest.raises(CreateError, match=r"is there already. To make it anew: tuiapp env remove torch"):
        create("torch", quiet)
    with subprocess.Popen([found.python, "-c", "input()"], stdin=subprocess.PIPE) as user:
        with pytest.raises(CreateError, match=f"in use by process {user.pid} .*; stop it first"):
            remove("torch")
        assert find_interpreter("torch-ddp") == found
        user.kill()
    assert create("torch", quiet, again=True) == directory
    assert remove("torch") == directory
    assert left() == ["torch.log"]
    assert find_interpreter("torch-ddp").origin == "own"
    with pytest.raises(CreateError, match=r"There is no environment 'torch' in .*; there are: none"):
        remove("torch")


@pytest.mark.nightly
def test_what_cannot_be_installed_leaves_its_log_alone(wheels: Path) -> None:
    (wheels / "numpy-2.4.6-py3-none-any.whl").unlink()
    with pytest.raises(CreateError, match=r"No matching distribution found for numpy==2.4.6[^$]*All that it said: "):
        create("torch", quiet)
    assert left() == ["torch.log"]


def test_a_cancelled_one_leaves_nothing_behind(stuck: Path) -> None:
    cancelled = threading.Event()
    with pytest.raises(CancelledError):
        create("jax", lambda line, size: cancelled.set() if line else None, cancelled=cancelled)
    wait_dead(wait_for(stuck))
    assert left() == ["jax.log"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_installer_and_leaves_nothing_behind(stuck: Path, ending: signal.Signals) -> None:
    with subprocess.Popen([*TUIAPP, "env", "create", "jax"], stderr=subprocess.PIPE, text=True) as process:
        pid = wait_for(stuck, process)
        process.send_signal(ending)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Downloads about 170 MB" in said
    wait_dead(pid)
    assert left() == ["jax.log"]


def test_a_framework_that_needs_another_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tuiapp.library.environments.sys.version_info", (3, 13, 1))
    with pytest.raises(CreateError, match=r"mxnet needs Python 3.11: numpy==1.23.5 does not install on the 3.13 that"):
        describe("mxnet", cuda=False)
    (tmp_path / "python3.11").touch(mode=0o700)
    assert "mxnet==1.9.1, numpy==1.23.5" in describe("mxnet", cuda=False)


def test_what_would_be_downloaded_is_said() -> None:
    assert describe("jax", cuda=False).endswith("Downloads about 170 MB, and takes about 760 MB on the disk.")
    assert "jax[cuda13]==" in describe("jax", cuda=True)
    assert "jax[cuda12]==" in describe("jax", cuda=True, older=True)
    assert RECIPES["torch"].made_of(cuda=True, older=True)[1].endswith("/cu126")
    assert RECIPES["torch"].made_of(cuda=True, older=False) == (RECIPES["torch"].cuda, "")
    with pytest.raises(CreateError, match=r"no build of mxnet==1.9.1 for today's GPUs; leave out --cuda"):
        describe("mxnet", cuda=True)


def test_the_pins_are_what_is_tested() -> None:
    from packaging.requirements import Requirement
    from packaging.version import Version

    from tuiapp.trainers.config.catalog import _requirements

    bounds = {
        one.name: one.specifier for extra in ("torch", "jax", "keras") for one in map(Requirement, _requirements(extra))
    }
    for name in ("torch", "jax", "keras"):
        for pin in map(Requirement, RECIPES[name].requirements):
            (exact,) = pin.specifier
            assert not is_newer_than_tested(pin.name, exact.version), pin
            # PyTorch's upper bound is that of a small build for CPUs.
            assert pin.name == "torch" or pin.name not in bounds or bounds[pin.name].contains(exact.version), pin
    # JAX's is what is tested.
    major, minor = NEWEST_TESTED["jax"]
    assert bounds["jax"].contains(Version(f"{major}.{minor}.99"))
    assert not bounds["jax"].contains(Version(f"{major}.{minor + 1}"))


def _index_has(requirement: str) -> bool:
    """Whether pip, as it is set up here, would install a requirement by itself."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--retries", "0"]
    return subprocess.run([*pip, requirement], capture_output=True, timeout=300, check=False).returncode == 0


@pytest.mark.by_hand
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "module"), [("torch", "torch"), ("jax", "flax.linen, optax"), ("keras", "keras")])
def test_the_others_for_real(name: str, module: str) -> None:
    for pin in RECIPES[name].requirements:
        if not _index_has(pin):
            pytest.skip(f"pip's index cannot be reached, or has no {pin}, or a constraint forbids it")
    directory = create(name, quiet)
    command = [str(directory / "bin" / "python"), "-c", f"import {module}"]
    subprocess.run(command, check=True, env={**os.environ, "KERAS_BACKEND": "jax"})
