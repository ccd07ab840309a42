"""Runs on data of the user's own, in real processes with the real frameworks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.harness import launched
from tests.kit.npz import make_arrays, write_npz
from tests.kit.user_files import write_data, write_images
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config import memory
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.events import LogLine, RankFailed
from tuiapp.trainers.launch import LaunchError, launch
from tuiapp.trainers.state.status import read_config

pytestmark = pytest.mark.nightly


@pytest.mark.by_hand
@pytest.mark.parametrize(("backend", "name"), [("torch-ddp", "arrays"), ("jax-sharding", "mapped")])
def test_a_run_on_what_a_function_returns(
    runs_dir: Path, tmp_path: Path, backend: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = write_data(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    config = RunConfig(
        backend=backend, dataset=f"py:data.py:{name}", model="mlp", platform="cpu", global_batch_size=30, epochs=3
    )
    with launched(config, runs_dir) as run:
        assert run.started.total_steps == 30
        end = run.end()
        run.wait_gone()
    assert end.status == "completed", end
    assert end.summary.test_accuracy is not None
    assert end.summary.test_accuracy > 0.9
    plan = read_plan(run.run.plan)
    assert (plan.data.train_examples, plan.data.test_examples, plan.data.input_shape) == (300, 91, (12, 10, 1))
    assert (plan.data.classes, plan.data.value_bytes, plan.data.mapped) == (3, 1, name == "mapped")
    assert read_config(run.run).dataset == value
    assert (run.run.code / "data.py").read_text() == (tmp_path / "data.py").read_text()


def test_an_error_in_the_users_code_is_the_launchs_with_its_traceback(runs_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text("def arrays():\n    print('begun')\n    return open('/none')\n")
    with pytest.raises(LaunchError) as caught:
        launch(RunConfig(dataset=f"py:{file}:arrays", platform="cpu"), runs_dir)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"py:{file}:arrays failed:"
    assert lines[1:4] == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 3, in arrays',
        "    return open('/none')",
    ]
    assert lines[-1] == "FileNotFoundError: [Errno 2] No such file or directory: '/none'"
    assert not runs_dir.exists()


X = "np.zeros((60, 12, 10), np.uint8)"
Y = "np.zeros(60, int)"


@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("3", "returned a int; it must return x_train, y_train, x_test, y_test."),
        (f"{X}, {Y}", "returned 2 values; it must return"),
        (f"[1], {Y}, {X}, {Y}", "x_train is a list; it must be a NumPy array or memory map."),
        (f"{X}, {Y}, {X}[0], {Y}", "x_test is uint8 [12, 10]; images must be [N, H, W] or [N, H, W, C]."),
        (f"{X}.astype(int), {Y}, {X}, {Y}", "x_train is int64 [60, 12, 10]; images must be uint8 from 0 to 255, or"),
        (f"{X}, {Y} / 2, {X}, {Y}", "y_train is float64 [60]; labels must be integers."),
        (f"{X}, {Y} - 1, {X}, {Y}", "y_train has the label -1; labels count from 0"),
        (f"{X}, {Y}[1:], {X}, {Y}", "there must be one label for each image."),
        (f"{X}, {Y}, {X}[:, 1:], {Y}", "both must have images of the same size."),
        (f"{X}, {Y}, {X} / 1.0, {Y}", "either both are uint8 from 0 to 255 or both are floats."),
        (f"{X}, {Y}, {X}[:0], {Y}[:0]", "x_test is uint8 [0, 12, 10]; it must not be empty."),
        (f"{X} / 0.0, {Y}, {X} / 1.0, {Y}", "returns images that are not finite"),
    ],
)
def test_what_is_no_data_set_is_refused(runs_dir: Path, tmp_path: Path, returned: str, words: str) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"import numpy as np\nnp.seterr(all='ignore')\ndef arrays():\n    return {returned}\n")
    with pytest.raises(ConfigError) as caught:
        launch(RunConfig(dataset=f"py:{file}:arrays", platform="cpu"), runs_dir)
    assert f"dataset: py:{file}:arrays" in str(caught.value)
    assert words in str(caught.value)
    assert not runs_dir.exists() or os.listdir(runs_dir) == []


def test_ranks_that_get_other_arrays_are_told_of(runs_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    returned = f"np.random.rand(60, 12, 10), {Y}, np.ones((9, 12, 10)), {Y}[:9]"
    file.write_text(f"import numpy as np\ndef arrays():\n    return {returned}\n")
    with launched(RunConfig(dataset=f"py:{file}:arrays", model="mlp", platform="cpu", devices=1), runs_dir) as run:
        assert run.end().status == "failed"
        (failed,) = run.of(RankFailed)
        run.wait_gone()
    assert failed.error.endswith("All ranks must get the same: seed your random numbers.")


@pytest.mark.parametrize("backend", mostly_by_hand(["torch-ddp", "keras-jax"], "torch-ddp"))
def test_a_run_on_a_folder_of_images(
    runs_dir: Path, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = RunConfig(
        backend=backend,
        dataset=write_images(tmp_path / "images", "train", "val", each=30),
        image_size=16,
        model="mlp",
        platform="cpu",
        global_batch_size=10,
        epochs=4,
    )
    with launched(config, runs_dir) as run:
        assert run.started.total_steps == 36
        end = run.end()
        run.wait_gone()
    assert end.status == "completed", end
    assert end.summary.test_accuracy is not None
    assert end.summary.test_accuracy > 0.9
    said = [line.text for line in run.of(LogLine) if line.text.startswith("decoded")]
    assert said == [f"decoded {tmp_path}/images: 180 images"]


@pytest.mark.parametrize("backend", ["torch-ddp", pytest.param("keras-torch", marks=pytest.mark.by_hand)])
def test_images_read_batch_by_batch_train_like_those_in_memory(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    config = RunConfig(
        backend=backend,
        dataset=write_data(tmp_path, "mapped"),
        model="net",
        platform="cpu",
        devices=2,
        global_batch_size=30,
        epochs=2,
    )
    told = []
    for part in (0.5, 0.0):
        monkeypatch.setattr(memory, "RESIDENT_PART", part)
        with launched(config, runs_dir) as run:
            assert read_plan(run.run.plan).streamed == (part == 0)
            assert run.end().status == "completed"
            evaluated = [(one.step, one.loss, one.accuracy) for one in run.evaluations()]
            told.append((run.losses(0), run.losses(1), evaluated))
            waited = [value for event in run.reports(0) for value in event.values["data_wait"]]
            run.wait_gone()
        assert len(waited) == 20
    assert told[0] == told[1]


@pytest.mark.by_hand
def test_grey_images_of_bytes_with_jax_sharding(runs_dir: Path, tmp_path: Path) -> None:
    name = write_npz(tmp_path / "grey.npz", make_arrays((12, 14), dtype="uint8", train=300, test=91))
    config = RunConfig(
        dataset=name, model="net", backend="jax-sharding", platform="cpu", global_batch_size=30, epochs=6
    )
    with launched(config, runs_dir) as run:
        end = run.end()
        run.wait_gone()
        assert end.status == "completed", end
        assert end.summary.steps == 60
        assert end.summary.test_accuracy is not None
        assert end.summary.test_accuracy > 0.9


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    file = tmp_path / "damaged.npz"
    write_npz(file, make_arrays())
    data = bytearray(file.read_bytes())
    data[5000] ^= 0x10
    file.write_bytes(data)
    return file


def test_damaged_images_are_refused_before_the_launch(runs_dir: Path, damaged: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        launch(RunConfig(dataset=f"npz:{damaged}", model="mlp", platform="cpu", devices=1), runs_dir)
    assert f"dataset: {damaged}: x_train cannot be read: Bad CRC-32" in str(caught.value)
    assert not runs_dir.exists() or not list(runs_dir.iterdir())
