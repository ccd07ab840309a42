"""Runs on data sets of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.harness import launched
from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.launch import launch

pytestmark = pytest.mark.nightly


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
