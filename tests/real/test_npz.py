"""Runs on data sets of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kit.harness import launched
from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.launch import launch
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise

pytestmark = pytest.mark.nightly


@pytest.mark.by_hand
def test_colour_images_of_floats_with_torch_ddp(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "colour.npz"
    write_npz(file, make_arrays((13, 11, 3), train=300, test=91))
    monkeypatch.chdir(tmp_path)
    config = RunConfig(dataset="npz:colour.npz", model="convnet", platform="cpu", global_batch_size=30, epochs=4)
    with launched(config, runs_dir) as run:
        assert (run.started.steps_per_epoch, run.started.total_steps) == (10, 40)
        run.at_step(1)
        # All that a run needs of the file it has by now.
        file.unlink()
        end = run.end()
        run.wait_gone()
        assert end.status == "completed", end
        assert end.summary.test_accuracy is not None
        assert end.summary.test_accuracy > 0.9
        assert end.summary.epochs == 4
        assert read_config(run.run).dataset == f"npz:{file}"
        assert summarise(run.run).status == "completed"


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


@pytest.mark.by_hand
def test_a_rank_holds_bytes_as_bytes(runs_dir: Path, tmp_path: Path) -> None:
    x, y = np.zeros((100_000, 64, 64), np.uint8), np.arange(100_000) % 2
    np.savez_compressed(tmp_path / "large.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    config = RunConfig(dataset=f"npz:{tmp_path}/large.npz", model="mlp", platform="cpu", devices=1, max_steps=1_000_000)
    with launched(config, runs_dir) as run:
        run.at_step(1)
        status = Path(f"/proc/{run.pid(0)}/status").read_text().split("VmHWM:")[1]
        peak = int(status.split()[0]) << 10
    print(f"\n{x.nbytes / 2**20:.0f} MiB of images: {peak / 2**20:.0f} MiB at most in the rank")
    # PyTorch takes some 300 MiB by itself; as float32 the images alone would take 1,600.
    assert peak < 2.5 * x.nbytes
