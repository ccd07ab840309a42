"""Runs with models of the user's own, in real processes with the real frameworks."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.kit.harness import launched, resumed
from tests.kit.user_files import write_model
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.state.status import read_config

pytestmark = pytest.mark.nightly

BACKENDS = [
    ("torch-ddp", "torch", 2),
    pytest.param("torch-dp", "torch", 1, marks=pytest.mark.by_hand),
    ("jax-sharding", "flax", 2),
    pytest.param("jax-pmap", "flax", 2, marks=pytest.mark.by_hand),
    ("keras-jax", "keras", 2),
    pytest.param("keras-torch", "keras", 2, marks=pytest.mark.by_hand),
    pytest.param("mxnet-gluon", "mxnet", 2, marks=pytest.mark.by_hand),
]


@pytest.mark.parametrize(("backend", "framework", "devices"), BACKENDS)
def test_a_run(runs_dir: Path, tmp_path: Path, backend: str, framework: str, devices: int) -> None:
    value = write_model(tmp_path, framework)
    config = RunConfig(backend=backend, model=value, platform="cpu", devices=devices, epochs=6, learning_rate=0.005)
    with launched(config, runs_dir) as run:
        assert run.started.flops_per_example is None
        end = run.end()
        run.wait_gone()
    assert end.status == "completed", end
    assert end.summary.test_accuracy is not None
    assert end.summary.test_accuracy > 0.85
    assert not run.alerts()
    assert [file.name.partition(".")[0] for file in run.run.export.iterdir()] == ["model"]
    assert f"-{backend}-py-net-" in run.run.run_id
    copy = run.run.code / f"{framework}_net.py"
    assert copy.read_text() == (tmp_path / copy.name).read_text()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("backend", "framework", "devices"), [BACKENDS[0], pytest.param("keras-jax", "keras", 2, marks=pytest.mark.by_hand)]
)
def test_a_resumed_run_says_that_the_file_has_changed(
    runs_dir: Path, tmp_path: Path, backend: str, framework: str, devices: int
) -> None:
    value = write_model(tmp_path, framework)
    config = RunConfig(backend=backend, model=value, platform="cpu", devices=devices, epochs=1)
    with launched(config, runs_dir) as run:
        assert run.end().status == "completed"
        run.wait_gone()
    with resumed(run.run, replace(read_config(run.run), epochs=2)) as again:
        assert again.end().status == "completed"
        again.wait_gone()
    assert not again.alerts()
    file = Path(value.split(":")[1])
    file.write_text(file.read_text() + "\n# a comment\n")
    with resumed(run.run, replace(read_config(run.run), epochs=3)) as again:
        assert again.end().status == "completed"
        again.wait_gone()
    copy = run.run.code / file.name
    (alert,) = again.alerts()
    assert alert.text.startswith(f"{file} has changed since the run was launched with what is kept in {copy}; resuming")
    assert len(list_checkpoints(run.run.checkpoints)[0]) == 3


def test_the_users_traceback_comes_first(runs_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("def helper():\n    raise KeyError('mine')\n\ndef net(shape, classes):\n    return helper()\n")
    with launched(RunConfig(model=f"py:{file}:net", platform="cpu", devices=1), runs_dir) as run:
        end = run.end()
        (failed,) = run.of(RankFailed)
        run.wait_gone()
    assert end.status == "failed"
    assert failed.error == "KeyError: 'mine'"
    assert failed.traceback.splitlines()[:3] == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 5, in net',
        "    return helper()",
    ]
    assert "tuiapp" not in failed.traceback


def test_an_error_in_its_forward_pass_begins_in_the_users_file(runs_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(3, classes)\n"
        "    def forward(self, x):\n"
        "        return self.fc(x)\n"
    )
    with launched(RunConfig(model=f"py:{file}:Net", platform="cpu", devices=1), runs_dir) as run:
        assert run.end().status == "failed"
        (failed,) = run.of(RankFailed)
        run.wait_gone()
    assert failed.error.startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert failed.traceback.splitlines()[1] == f'  File "{file}", line 7, in forward'


@pytest.mark.parametrize(
    ("backend", "source", "words"),
    [
        ("torch-ddp", "def net(shape, classes): return 3", "returned a int; it must return a torch.nn.Module."),
        ("jax-sharding", "def net(shape, classes): return 3", "returned a int; it must return a flax.linen.Module."),
        ("keras-jax", "def net(shape, classes): return 3", "returned a int; it must return a keras.Model."),
        ("torch-ddp", "net = 3", "it must be callable."),
        (
            "torch-ddp",
            "from torch import nn\ndef net(shape, classes): return nn.Sequential(nn.Flatten(), nn.LazyLinear(7))",
            "gives [2, 7] for images [2, 1, 28, 28]; it must give logits [2, 10].",
        ),
    ],
)
def test_what_is_no_model_is_said_in_words(
    runs_dir: Path, tmp_path: Path, backend: str, source: str, words: str
) -> None:
    file = tmp_path / "net.py"
    file.write_text(source)
    with launched(RunConfig(backend=backend, model=f"py:{file}:net", platform="cpu", devices=1), runs_dir) as run:
        assert run.end().status == "failed"
        (failed,) = run.of(RankFailed)
        run.wait_gone()
    assert words in failed.error
    assert str(file) in failed.error
    assert failed.traceback == ""
