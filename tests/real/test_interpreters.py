"""Runs whose ranks are in an interpreter that has NumPy, msgspec and a framework, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.harness import launched, resumed
from tests.kit.isolated import isolated
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
