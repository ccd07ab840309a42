"""Inputs that a backend normalizes are those of data that was normalized before."""

from __future__ import annotations

from pathlib import Path

import keras
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tests.kit.close import assert_close, in_training, logits, rounding
from tests.kit.harness import launched, resumed
from tests.kit.npz import NpzArrays, make_arrays, write_npz
from tests.kit.recorder import ONE_PROCESS, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.normalization import Normalization
from tuiapp.trainers.config.plan import make_plan, read_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.frameworks.keras import state as keras_state
from tuiapp.trainers.launch import LaunchError, resume
from tuiapp.trainers.sources.arrays import StoredImages
from tuiapp.trainers.sources.datasets import load, measure, normalized

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", devices=2, global_batch_size=24, max_steps=10, optimizer="sgd", learning_rate=0.01,
    checkpoint_every=0,
)  # fmt: skip
ELSEWHERE = [name for name, backend in BACKENDS.items() if backend.builtin and name not in ONE_PROCESS]


def colours() -> NpzArrays:
    """uint8 images whose channels are of different brightness and contrast."""
    arrays = make_arrays(dtype="uint8")
    for part in ("x_train", "x_test"):
        arrays[part] = (arrays[part] * [1.0, 0.5, 0.25] + [0, 90, 20]).astype(np.uint8)
    return arrays


def normalized_before(arrays: NpzArrays) -> tuple[NpzArrays, Normalization]:
    scaled = {name: arrays[name].astype(np.float32) / 255 for name in ("x_train", "x_test")}
    exact = scaled["x_train"].astype(np.float64)
    mean, std = exact.mean((0, 1, 2)), exact.std((0, 1, 2))
    images = {name: ((part - mean) / std).astype(np.float32) for name, part in scaled.items()}
    return arrays | images, Normalization(tuple(mean.tolist()), tuple(std.tolist()))


def both(tmp_path: Path, backend: str, devices: int = 2) -> tuple[RunConfig, RunConfig]:
    """A configuration that normalizes, and one on data normalized before."""
    arrays = colours()
    config = replace(CONFIG, backend=backend, devices=devices)
    ready = write_npz(tmp_path / "ready.npz", normalized_before(arrays)[0])
    raw = write_npz(tmp_path / "raw.npz", arrays)
    return replace(config, dataset=raw, normalize="data"), replace(config, dataset=ready)


@pytest.mark.parametrize("backend", mostly_by_hand(ONE_PROCESS, "jax-sharding"))
def test_one_process_trains_as_on_normalized_data(backend: str, tmp_path: Path) -> None:
    told, wanted = (train(config) for config in both(tmp_path, backend))
    for one, other in zip(told.losses(), wanted.losses(), strict=True):
        assert_close(one, other, in_training(CONFIG, parts=2))
    assert_close(told.evaluations[-1].loss, wanted.evaluations[-1].loss, in_training(CONFIG))
    raw = train(replace(both(tmp_path, backend)[0], normalize=""))
    assert raw.losses()[0] != pytest.approx(told.losses()[0], abs=1e-3)


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", mostly_by_hand(ELSEWHERE, "torch-ddp"))
def test_ranks_train_as_on_normalized_data(backend: str, tmp_path: Path) -> None:
    curves = []
    for config in both(tmp_path, backend, 1 if backend == "torch-dp" else 2):
        with launched(config, tmp_path) as run:
            assert run.end(170).status == "completed"
            curves.append([*run.losses(0), *(one.loss or 0.0 for one in run.evaluations())])
            exported = run.run.export / "normalization.json"
            assert exported.exists() == bool(config.normalize)
    assert_close(curves[0], curves[1], in_training(CONFIG, parts=2))


@pytest.mark.by_hand
def test_a_resumed_run_normalizes_by_what_its_checkpoint_says(tmp_path: Path) -> None:
    """Bit for bit as one that never stopped; of data that have changed meanwhile, too, and by nothing else."""
    config = replace(both(tmp_path, "torch-ddp")[0], max_steps=20, epochs=10, checkpoint_every=2)
    with launched(config, tmp_path / "whole") as whole:
        assert whole.end(170).status == "completed"
    with launched(replace(config, max_steps=10), tmp_path / "parts") as run:
        assert run.end(170).status == "completed"
    (saved, *_), _ = list_checkpoints(run.run.checkpoints)
    wanted = normalized_before(colours())[1]
    found = saved.manifest.normalization
    assert found is not None
    # Bytes ÷ 255, in float32.
    assert_close(found.mean + found.std, wanted.mean + wanted.std, rounding(2))
    with resumed(run.run, config) as rest:
        assert rest.end(170).status == "completed"
        assert [rest.losses(rank)[-10:] for rank in range(2)] == [whole.losses(rank)[10:] for rank in range(2)]
    darker = {name: part // 2 if name == "x_train" else part for name, part in colours().items()}
    write_npz(tmp_path / "raw.npz", darker)
    with resumed(run.run, replace(config, max_steps=22)) as last:
        assert last.end(170).status == "completed"
    assert read_plan(run.run.plan).normalization == found
    with pytest.raises(LaunchError, match="was made with normalize = data, not nothing: start a new run"):
        resume(run.run, replace(config, max_steps=30, normalize=""))


OWN = """
import keras

def net(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes)])
"""


@pytest.mark.parametrize("own", [False, True])
def test_a_keras_model_that_is_exported_normalizes_by_itself(own: bool, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    model = f"py:{tmp_path / 'own.py'}:net" if own else "mlp"
    config = replace(CONFIG, backend="keras-jax", model=model, normalize="0.4 / 0.2, 0.3, 0.1")
    plan = make_plan(replace(config, dataset=write_npz(tmp_path / "raw.npz", colours())))
    trained = keras_state.create_model(plan)
    plain = keras_state.create_model(msgspec.structs.replace(plan, normalization=None))
    plain.set_weights(trained.get_weights())
    keras_state.save(trained, plan, tmp_path / "model.keras")
    exported, images = keras.saving.load_model(tmp_path / "model.keras"), colours()["x_test"]
    ready = (images.astype(np.float32) / 255 - np.float32(0.4)) / np.array([0.2, 0.3, 0.1], np.float32)
    wanted = np.asarray(plain(ready))
    assert_close(exported(images), wanted, logits("mlp", float(np.abs(wanted).max())))


def test_the_numbers_of_the_data() -> None:
    plan = make_plan(replace(CONFIG, dataset="digits", normalize="data"))
    images = load(plan.data).x_train
    found = normalized(plan).normalization
    assert found is not None
    # It keeps nine decimals: a third of this.
    within = rounding(images.size, dtype="float64") + 1.5e-9
    assert_close(found.mean, [(images / 255).mean()], within)
    assert_close(found.std, [(images / 255).std()], within)
    # Those that are read batch by batch, and floats, come to the same.
    assert measure(StoredImages(images)) == found
    floats = measure((images / 255).astype(np.float32))
    assert_close(floats.mean + floats.std, found.mean + found.std, rounding(2))
