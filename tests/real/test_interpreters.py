"""Interpreters that have no more than the ranks need, and every way to install the program."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.harness import launched, resumed
from tests.kit.installs import KINDS, Built, build, install
from tests.kit.isolated import isolated
from tuiapp.library import manual
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.settings import settings_path
from tuiapp.trainers.contract.events import RankStarted

pytestmark = pytest.mark.nightly


OWN_DATA = """
import importlib.util
import numpy as np

def data():
    missing = [name for name in ("textual", "safetensors", "psutil", "PIL") if importlib.util.find_spec(name)]
    assert not missing, missing
    x, y = np.random.default_rng(0).random((96, 12, 12, 1), np.float32), np.arange(96) % 10
    return x, y, x, y
"""


@pytest.fixture(scope="module")
def torch_alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    return isolated(tmp_path_factory.mktemp("torch"), "torch", "numpy", "msgspec")


def set_environment(framework: str, python: str) -> None:
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text(f'[environments]\n{framework} = "{python}"\n')


@pytest.mark.by_hand
def test_torch_with_data_of_ones_own_and_resumed(torch_alone: str, tmp_path: Path, runs_dir: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_DATA)
    config = RunConfig(
        model="mlp", dataset=f"py:{tmp_path}/mine.py:data", platform="cpu", global_batch_size=48, epochs=2,
        checkpoint_every=1, python=torch_alone,
    )  # fmt: skip
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed", run.end()
        run.wait_gone()
        assert {Path(f"/proc/{event.pid}").exists() for event in run.of(RankStarted)} == {False}
        assert json.loads(run.run.plan.read_text())["python"] == torch_alone
        said = json.loads(run.run.environment.read_text())
        assert said["interpreter"] == torch_alone
        assert set(said["versions"]) == {"tuiapp", "numpy", "torch"}
        assert all(said["versions"].values())
        assert len(list(run.run.checkpoints.glob("step-*"))) == 2
        more = RunConfig(**{**{key: getattr(config, key) for key in config.__struct_fields__}, "epochs": 3})
        with resumed(run.run, more) as again:
            assert again.end().status == "completed"
            assert again.steps_of(0) == [5, 6]


def test_a_script_runs_in_the_one_of_scripts(torch_alone: str, tmp_path: Path, runs_dir: Path) -> None:
    set_environment("script", torch_alone)
    (tmp_path / "train.py").write_text("import sys\nassert sys.executable == sys.argv[1], sys.executable\n")
    config = RunConfig(
        backend="script", script=str(tmp_path / "train.py"), arguments=torch_alone, processes="one", platform="cpu"
    )
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed", run.end()
        run.wait_gone()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_all_that_is_needed_beside_the_code(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    pages = {f"tuiapp/manual/{topic}.md" for topic in manual.TOPICS}
    presets = {str(path.relative_to(ROOT)) for path in (ROOT / "tuiapp/library/builtin_presets").glob("*.toml")}
    digits = {str(path.relative_to(ROOT)) for path in (ROOT / "tuiapp/trainers/sources").glob("*.npz")}
    assert presets
    assert digits
    assert pages | presets | digits <= names
    assert {name.partition("/")[0] for name in names} == {"tuiapp", f"{built.sdist.name}.dist-info"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_elsewhere(kind: str, built: Built, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    installed = install(kind, tmp_path / "venv", built)
    told = installed.run("-c", "import tuiapp, tuiapp.trainers as t; print(tuiapp.__file__, t.__file__)", cwd=elsewhere)
    assert told.stdout.split() == [str(installed.package / name) for name in ("__init__.py", "trainers/__init__.py")]
    # Of the trees, PYTHONPATH names the directory that has them.
    for name in ("trainers", "tests") if kind in ("wheel", "editable") else ():
        assert (
            f"ModuleNotFoundError: No module named '{name}'"
            in installed.run("-c", f"import {name}", cwd=elsewhere).stderr
        )
    run = ("-m", "tuiapp", "run", "quickstart", "--set", "epochs=1", "--set", "devices=1", "--json")
    done = installed.run(*run, cwd=elsewhere, variables={"TUIAPP_RUNS_DIR": str(tmp_path / "runs")})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["steps"]) == ("completed", 29)
