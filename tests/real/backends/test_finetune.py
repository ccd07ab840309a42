"""A model that begins with another's weights, of which some are frozen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched, resumed
from tests.kit.npz import make_arrays, write_npz
from tests.kit.only_rank import train_alone
from tests.kit.recorder import ONE_PROCESS, Recorder, Shelf, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import InitialWeights
from tuiapp.trainers.contract.manifest import MODEL_FILE, list_checkpoints
from tuiapp.trainers.rank import tensor_files
from tuiapp.trainers.rank.checkpoints import load
from tuiapp.trainers.rank.tensor_files import encode

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="convnet", platform="cpu", devices=2, epochs=2, global_batch_size=24, learning_rate=0.01, weight_decay=0.1,
    gradient_clip=1.0, checkpoint_every=1,
)  # fmt: skip
"""With all that could change a weight that has no gradient; 5 steps an epoch."""
ALONE = ("torch-ddp", "torch-fsdp")
"""A rank each, of which one trains here."""
HERE = [*ONE_PROCESS, "torch-dp", *ALONE]
FREEZE = "conv*, bn1*"
UNTRAINED = [f"bn{layer}.{name}" for layer in (1, 2, 3) for name in ("weight", "gamma")]


def data(directory: Path, classes: int) -> str:
    directory.mkdir(exist_ok=True)
    return write_npz(directory / f"{classes}.npz", make_arrays((14, 12, 3), classes=classes))


def configured(backend: str, **changes: Any) -> RunConfig:
    devices = 1 if backend in (*ALONE, "torch-dp") else 2
    return msgspec.structs.replace(CONFIG, backend=backend, devices=devices, **changes)


def trained(config: RunConfig, shelf: Shelf | None = None, save_at: int | None = None) -> Recorder:
    if config.backend in ALONE:
        return train_alone(config, shelf, save_at=save_at)
    return train(config, save_at=save_at, shelf=shelf)


def source(backend: str, directory: Path) -> tuple[Path, dict[str, Any]]:
    """The weights of a model that was trained on three classes, as a file and as arrays."""
    shelf = Shelf()
    trained(configured(backend, dataset=data(directory, 3), epochs=1), shelf)
    model = {name: np.asarray(array) for name, array in shelf.saved[5].model.items()}
    file = directory / "source.safetensors"
    file.write_bytes(b"".join(encode(model)))
    return file, model


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def is_frozen(name: str) -> bool:
    return name.removeprefix("params.").startswith(("conv", "bn1")) and not is_statistic(name) and name not in UNTRAINED


def is_statistic(name: str) -> bool:
    words = ("running", "moving", "batch_stats", "num_batches")
    return any(word in name for word in words)


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", mostly_by_hand(HERE, "torch-ddp", "jax-sharding"))
def test_what_matches_is_taken_over_what_is_frozen_stays_and_a_resume_goes_on_bit_for_bit(
    backend: str, tmp_path: Path
) -> None:
    file, theirs = source(backend, tmp_path)
    config = configured(backend, dataset=data(tmp_path, 5), init_from=str(file), freeze=FREEZE)
    # After each epoch, and before the first step.
    shelf, fresh = Shelf(), Shelf()
    whole = trained(config, shelf, save_at=0)
    trained(msgspec.structs.replace(config, init_from="", freeze="", max_steps=1), fresh, save_at=0)
    begun, new, ended = shelf.saved[0].model, fresh.saved[0].model, shelf.saved[10].model
    head = {name for name in theirs if theirs[name].shape != new[name].shape}
    assert len(head) == 2
    for name, array in begun.items():
        assert bits(array) == bits((new if name in head else theirs)[name])
        # In PyTorch and MXNet the `convnet` has scales, which it does not train.
        changes = not (is_frozen(name) or name in UNTRAINED)
        if backend == "mxnet-gluon" and name.startswith("bn1.running"):
            # Its backward pass updates them, which ends before the first layer.
            changes = False
        assert (bits(ended[name]) != bits(array)) == changes, name

    found = whole.initial
    assert found is not None
    assert (found.source, found.arrays, found.matched) == (str(file), len(theirs), len(theirs) - 2)
    assert {line.split(" ")[0] for line in found.reshaped} == head
    assert all(", here [" in line and "5" in line for line in found.reshaped)
    assert (found.missing, found.unused) == ([], [])
    assert found.frozen == sum(np.size(array) for name, array in begun.items() if is_frozen(name))
    own = [array for name, array in begun.items() if not is_statistic(name) and name not in UNTRAINED]
    assert found.parameters == sum(map(np.size, own))
    # The optimizer keeps nothing for what is frozen: two moments of the others, beside what counts steps.
    large = sum(np.size(array) for name, array in shelf.saved[10].state.items() if name.startswith("optimizer"))
    assert 0 <= large - 2 * (found.parameters - found.frozen) < 20

    file.unlink()
    rest_shelf = Shelf(shelf.saved[5])
    rest = trained(config, rest_shelf)
    assert rest.losses() == whole.losses()[5:]
    assert {name: bits(array) for name, array in rest_shelf.saved[10].model.items()} == {
        name: bits(array) for name, array in ended.items()
    }
    assert rest.initial is None


@pytest.mark.parametrize("backend", mostly_by_hand(HERE, "torch-dp"))
def test_what_cannot_be_begun_with_is_refused_with_the_names_of_both(backend: str, tmp_path: Path) -> None:
    file, dataset = tmp_path / "other.safetensors", data(tmp_path, 3)
    file.write_bytes(b"".join(encode({"encoder.weight": np.zeros((3, 4), np.float32)})))
    with pytest.raises((ConfigError, ValueError), match=r"init_from: nothing in .* fits this model") as refused:
        trained(configured(backend, dataset=dataset, init_from=str(file)))
    assert "The file has encoder.weight [3, 4]; the model " in str(refused.value)
    assert "fc2" in str(refused.value) or "more" in str(refused.value)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises((ConfigError, ValueError), match=r"other\.safetensors is damaged, or no safetensors file"):
        trained(configured(backend, dataset=dataset, init_from=str(file)))
    with pytest.raises((ConfigError, ValueError), match=r"freeze: 'convx\*' names no parameter; there are: .*conv1"):
        trained(configured(backend, dataset=dataset, freeze="fc1*,convx*"))
    with pytest.raises((ConfigError, ValueError), match=r"freeze: '\*' names all 1\d parameters"):
        trained(configured(backend, dataset=dataset, freeze="*"))


def _models(directory: Path) -> Iterator[dict[str, Any]]:
    for checkpoint in list_checkpoints(directory / "checkpoints")[0]:
        yield load(checkpoint).model


@pytest.mark.by_hand
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", ["torch-ddp", "torch-fsdp", "keras-torch"])
def test_real_ranks_begin_with_a_runs_weights_and_go_on_without_them(backend: str, tmp_path: Path) -> None:
    small: dict[str, Any] = {"backend": backend, "model": "mlp", "optimizer": "sgd", "dataset": data(tmp_path, 3)}
    with launched(msgspec.structs.replace(CONFIG, **small), tmp_path / "runs") as first:
        assert first.end(170).status == "completed"
        first.wait_gone()
    small |= {"dataset": data(tmp_path, 5), "init_from": str(first.run.path), "freeze": "fc1*", "epochs": 30}
    curves = []
    for devices in (1, 2):
        config = msgspec.structs.replace(CONFIG, **{**small, "devices": devices, "keep_checkpoints": 9})
        with launched(config, tmp_path / "runs") as run:
            if devices == 2:
                run.at_step(7)
                sidecars.send_command(run.run.commands, "stop")
            run.end(170)
            run.wait_gone()
            evaluations = run.evaluations()
            (found,) = run.of(InitialWeights)
            assert found.source.startswith(f"{first.run.path}/checkpoints/step-")
            assert found.source.endswith(f"/{MODEL_FILE}")
            assert (found.matched, len(found.reshaped), found.frozen) == (4, 2, 14 * 12 * 3 * 256 + 256)
        if devices == 1:
            theirs = tensor_files.load(Path(found.source))
        if devices == 2:
            shutil.rmtree(first.run.path)
            with resumed(run.run) as again:
                assert again.end(170).status == "completed"
                again.wait_gone()
                assert not [one for one in again.of(InitialWeights) if one.time > found.time]
                evaluations += again.evaluations()
        for model in _models(run.run.path):
            for name, array in model.items():
                assert (bits(array) == bits(theirs[name])) == name.startswith("fc1")
        # Of steps as fast as these several share an entry of the journal, on each rank others; evaluations do not.
        curves.append({one.step: one.loss for one in evaluations})
    assert curves[1].keys() == curves[0].keys()
    assert_close([curves[1][step] for step in curves[0]], list(curves[0].values()), in_training(config))
    assert len(curves[1]) == small["epochs"]


@pytest.mark.by_hand
@pytest.mark.parametrize("freeze", ["conv*,bn*,stage*", "stage1*,stage3*", "stage4*,fc*"])
def test_fsdp_leaves_whole_blocks_and_parts_of_what_is_in_none_as_torch_ddp_does(freeze: str, tmp_path: Path) -> None:
    config = configured("torch-ddp", model="resnet18", dataset=data(tmp_path, 3), freeze=freeze, max_steps=3)
    shelves = [Shelf(), Shelf()]
    ours, theirs = (
        trained(msgspec.structs.replace(config, backend=backend), shelf, save_at=0)
        for backend, shelf in zip(ALONE, shelves, strict=True)
    )
    assert_close(theirs.losses(), ours.losses(), in_training(config))
    patterns = freeze.split(",")
    for shelf in shelves:
        begun, ended = shelf.saved[0].model, shelf.saved[3].model
        for name in begun:
            frozen = any(fnmatch(name, pattern) for pattern in patterns) and not is_statistic(name)
            assert (bits(begun[name]) == bits(ended[name])) == frozen, name
