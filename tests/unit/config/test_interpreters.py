"""Which interpreter runs a backend's ranks, what is known of it, and that it imports our tuiapp."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import tuiapp
from tests.kit.isolated import isolated
from tuiapp.trainers.config import bootstrap
from tuiapp.trainers.config import installed as installed_module
from tuiapp.trainers.config.catalog import BACKENDS, PACKAGES
from tuiapp.trainers.config.installed import OWN, TORCH_CUDA, Installed, inspect_packages, known
from tuiapp.trainers.config.interpreters import COMPLETE, environments_dir, find_interpreter, why_not
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.settings import read_settings, settings_path
from tuiapp.trainers.launch import launch


def write_settings(text: str) -> None:
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text(text)


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def says(path: Path, version: str = "3.11.7", **packages: str) -> str:
    """An interpreter that answers with these versions."""
    found = ", ".join(f'"{name}": "{of}"' for name, of in packages.items())
    return program(path, f'echo \'{{"version": "{version}", "searched": [], "packages": {{{found}}}}}\'')


def refusal(config: RunConfig, tmp_path: Path, machine: Machine) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        launch(config, tmp_path / "runs", machine)
    (problem,) = caught.value.problems
    assert not (tmp_path / "runs").exists()
    return problem.key, problem.message


def test_the_order_in_which_it_is_found(tmp_path: Path) -> None:
    a, b, c = (program(tmp_path / name, "exit 1") for name in "abc")
    assert find_interpreter("jax-pmap") == (sys.executable, "own", "install tuiapp again")
    half = environments_dir() / "jax"
    created = program(half / "bin" / "python", "exit 1")
    # One that was never finished does not count.
    assert find_interpreter("jax-pmap").origin == "own"
    (half / COMPLETE).touch()
    assert find_interpreter("jax-pmap")[:2] == (created, "created")
    write_settings(f'[environments]\njax = "{a}"\n')
    assert find_interpreter("jax-pmap")[:2] == find_interpreter("jax-sharding")[:2] == (a, "settings")
    assert find_interpreter("keras-jax").origin == "own"
    write_settings(f'[environments]\njax = "{a}"\njax-pmap = "{b}"\n')
    assert find_interpreter("jax-pmap").python == b
    assert find_interpreter("jax-sharding").python == a
    assert find_interpreter("jax-pmap", c)[:2] == (c, "python")


def test_settings_name_backends_and_frameworks_alone() -> None:
    write_settings('[environments]\njaxx = "/x"\ntorch = 3\n')
    _, problems = read_settings()
    assert [str(problem) for problem in problems] == [
        "environments.'jaxx': there is no such backend or framework. Did you mean 'jax'?",
        'environments.torch: 3 is not allowed; it must be an interpreter, as "~/venvs/jax/bin/python".',
    ]


def test_a_file_that_others_may_change_names_no_interpreter() -> None:
    write_settings('[environments]\njax = "/x"\n')
    settings_path().chmod(0o666)
    settings, problems = read_settings()
    assert settings.environments == {}
    assert "environments: is ignored" in str(problems[0])


def test_it_is_asked_once_until_something_is_installed(tmp_path: Path) -> None:
    python, asked = isolated(tmp_path / "venv", "msgspec"), tmp_path / "asked"
    wrapper = program(tmp_path / "venv" / "bin" / "python3.99", f'echo >> {asked}\nexec {python} "$@"')
    first = inspect_packages(wrapper, PACKAGES)
    assert (first.version, dict(first.packages)) == (
        "{}.{}.{}".format(*sys.version_info),
        {"msgspec": first.version_of("msgspec")},
    )
    assert known(wrapper, PACKAGES) == inspect_packages(wrapper, PACKAGES) == first
    # Another process reads what this one was told.
    installed_module._known.clear()
    assert inspect_packages(wrapper, PACKAGES) == first
    assert len(asked.read_text().splitlines()) == 1
    assert known(wrapper, [*PACKAGES, "one_more"]) is None
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "flax").mkdir()
    (packages / "flax" / "__init__.py").touch()
    os.utime(packages, (1, 1))
    assert known(wrapper, PACKAGES) is None
    assert inspect_packages(wrapper, PACKAGES).packages == {**first.packages, "flax": ""}
    assert len(asked.read_text().splitlines()) == 2


def test_one_that_cannot_be_executed_is_refused(tmp_path: Path, machine: Machine) -> None:
    config = RunConfig(python=str(tmp_path / "none"))
    why = f"'{tmp_path}/none' does not exist; leave it empty for {sys.executable}."
    assert refusal(config, tmp_path, machine) == ("python", why)
    (tmp_path / "none").touch()
    assert "is not an executable program" in refusal(config, tmp_path, machine)[1]
    write_settings(f'[environments]\ntorch-ddp = "{tmp_path}/none"\n')
    key, why = refusal(RunConfig(), tmp_path, machine)
    assert key == "backend"
    assert why.endswith(f"program; change [environments] torch-ddp in {settings_path()}.")


def test_one_that_cannot_run_ranks_is_refused_with_what_mends_it(tmp_path: Path, machine: Machine) -> None:
    def why(python: str, backend: str = "torch-ddp") -> str:
        key, message = refusal(RunConfig(backend=backend, python=python), tmp_path, machine)
        assert key == "python"
        return message

    broken = program(tmp_path / "broken", "echo bad magic >&2; exit 3")
    assert why(broken) == f"'{broken}' does not run: bad magic; leave it empty for {sys.executable}."
    old = says(tmp_path / "old", "3.9.2")
    assert why(old) == f"{old} is Python 3.9.2; ranks need 3.11 or newer"
    bare = isolated(tmp_path / "my venv")
    said = why(bare, "jax-pmap")
    assert said.startswith(f"jax, flax, optax, msgspec, numpy not installed in {bare}: '{bare}' -m pip install ")
    assert "'jax<0.13,>=0.10'" in said
    assert "'msgspec>=0.19' 'numpy>=1.23'" in said
    early = says(tmp_path / "early", msgspec="0.22", numpy="1.22.4", torch="2.13.0")
    assert why(early) == f"numpy 1.22.4 is too old: {early} -m pip install 'numpy>=1.23'"
    least = says(tmp_path / "least", msgspec="0.19.0", numpy="1.23.5", torch="2.13.0")
    inspect_packages(least, PACKAGES)
    assert why_not("torch-ddp", find_interpreter("torch-ddp", least)) == ""


def test_gpus_are_those_of_its_own_build(tmp_path: Path) -> None:
    cuda = inspect_packages(says(tmp_path / "cuda", torch="2.13.0", jax="0.10.2", jax_cuda13_plugin="0.10.2"), PACKAGES)
    cpu = inspect_packages(says(tmp_path / "cpu", torch="2.13.0+cpu", jax="0.10.2"), PACKAGES)
    for backend in ("torch-ddp", "jax-pmap"):
        assert BACKENDS[backend].without_gpus(cuda) == ""
        assert BACKENDS[backend].without_gpus(cpu)


def test_a_build_that_the_driver_or_a_gpu_is_too_old_for(machine: Machine, tmp_path: Path) -> None:
    h100, v100 = (
        Gpu(index=0, uuid="GPU-0", name=name, capability=capability)
        for name, capability in (("NVIDIA H100", (9, 0)), ("Tesla V100", (7, 0)))
    )
    newest = {"torch": "2.15.0", "jax": "0.12.0", "jax_cuda13_plugin": "0.12.0", TORCH_CUDA: "13.0"}
    older = {"torch": "2.9.0", "jax": "0.10.2", "jax_cuda12_plugin": "0.10.2", TORCH_CUDA: "12.6"}
    new, old = (inspect_packages(says(tmp_path / one["torch"], **one), PACKAGES) for one in (newest, older))

    def why(backend: str, installed: Installed, driver: str | None, gpu: Gpu) -> str:
        return BACKENDS[backend].without_gpus(installed, replace(machine, driver=driver, gpus=(gpu,)))

    for backend, cure in (
        ("torch-ddp", "/whl/cu126"),
        ("jax-sharding", "'jax[cuda12]'"),
        ("keras-jax", "'jax[cuda12]'"),
    ):
        assert why(backend, new, "580.82.07", h100) == why(backend, new, None, h100) == ""
        assert why(backend, old, "550.54.15", v100) == ""
        said = why(backend, new, "550.54.15", h100)
        assert "which needs driver 580 or newer; here it is 550.54.15: update the driver, or pip install" in said
        assert said.endswith(cure)
        said = why(backend, new, "580.82.07", v100)
        assert "which has no code for Tesla V100 (compute capability 7.0): pip install" in said
        assert said.endswith(cure)
    assert why("torch-ddp", old, "470.82.01", h100).endswith("here it is 470.82.01: update the driver")


def test_the_cuda_of_torch_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.15.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert OWN.version_of(TORCH_CUDA) == "13.0"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bare = isolated(tmp_path / "bare")
    assert inspect_packages(bare, (TORCH_CUDA,)).version_of(TORCH_CUDA) == "13.0"


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
