"""Which devices a run gets on machines with none, one, three and four GPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.npz import make_arrays, write_npz
from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.config.machine import Gpu, Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place, placement_problems
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig, build_config, cross_check, parse_toml, to_toml


def machine(gpus: int, cores: int = 4) -> Machine:
    return Machine(
        cpu_cores=cores,
        memory_total_bytes=1 << 34,
        gpus=tuple(Gpu(index=index, uuid=f"GPU-{index:02}aa", name="NVIDIA H200") for index in range(gpus)),
        gpu_problem="" if gpus else "no NVIDIA driver here",
    )


def uuids(*indices: int) -> tuple[str, ...]:
    return tuple(f"GPU-{index:02}aa" for index in indices)


def refusal(config: RunConfig, gpus: int) -> str:
    """The one problem with which a configuration is refused, by the launcher and in a form alike."""
    with pytest.raises(ConfigError) as caught:
        place(config, machine(gpus))
    (problem,) = caught.value.problems
    assert [*placement_problems(config, machine(gpus)), *cross_check(config)] == [problem]
    return str(problem)


@pytest.mark.parametrize(
    ("gpus", "batch", "expected"),
    [(1, 48, 1), (3, 48, 3), (4, 48, 4), (4, 30, 3), (4, 7, 1), (4, 49, 1), (3, 2, 2), (1, 1, 1)],
)
@pytest.mark.parametrize("platform", ["auto", "cuda"])
def test_without_a_count_as_many_gpus_as_divide_the_batch(gpus: int, batch: int, expected: int, platform: str) -> None:
    placed = place(RunConfig(platform=platform, global_batch_size=batch), machine(gpus))
    assert placed.platform == "cuda"
    assert placed.devices == expected
    assert placed.device_ids == uuids(*range(expected))
    assert cross_check(placed) == []


@pytest.mark.parametrize(("batch", "expected"), [(48, 2), (7, 1), (1, 1)])
@pytest.mark.parametrize(("platform", "gpus"), [("auto", 0), ("cpu", 0), ("cpu", 4)])
def test_without_gpus_two_cpu_ranks(batch: int, expected: int, platform: str, gpus: int) -> None:
    placed = place(RunConfig(platform=platform, global_batch_size=batch), machine(gpus))
    assert (placed.platform, placed.devices, placed.device_ids) == ("cpu", expected, ())


@pytest.mark.parametrize("gpus", [0, 1, 3, 4])
def test_a_placed_configuration_stays_where_it_is(gpus: int) -> None:
    placed = place(RunConfig(), machine(gpus))
    assert place(placed, machine(gpus)) == placed
    assert placement_problems(placed, machine(gpus)) == []


def test_the_first_gpus_when_there_is_a_count() -> None:
    assert place(RunConfig(devices=2), machine(4)).device_ids == uuids(0, 1)


@pytest.mark.parametrize("chosen", [("3", "1"), uuids(3, 1), ("3", "GPU-01aa")])
def test_gpus_by_index_or_uuid_in_the_order_given(chosen: tuple[str, ...]) -> None:
    placed = place(RunConfig(device_ids=chosen), machine(4))
    assert placed.device_ids == uuids(3, 1)
    assert placed.devices == 2


@pytest.mark.parametrize("gpus", [1, 3, 4])
def test_more_gpus_than_there_are(gpus: int) -> None:
    config = RunConfig(devices=6)
    assert refusal(config, gpus) == f"devices: 6 is more than this machine has: {gpus} GPU{'s' if gpus > 1 else ''}."


def test_more_cpu_ranks_than_sensible() -> None:
    assert place(RunConfig(devices=16), machine(0)).devices == 16
    message = refusal(RunConfig(devices=24, platform="cpu"), 0)
    assert message == "devices: 24 is more than this machine has: 4 CPU cores take at most 16 CPU ranks."


def test_gpus_wanted_where_there_are_none() -> None:
    assert refusal(RunConfig(platform="cuda"), 0) == "platform: cuda cannot be used here: no NVIDIA driver here."
    message = refusal(RunConfig(device_ids=("0",)), 0)
    assert message == (
        "device_ids: names GPUs, but there are none: no NVIDIA driver here. Leave it empty to train on CPUs."
    )


def test_a_gpu_that_does_not_exist() -> None:
    assert refusal(RunConfig(device_ids=("4",)), 3) == (
        "device_ids: there is no GPU '4' here; available: 0 (GPU-00aa), 1 (GPU-01aa), 2 (GPU-02aa)."
    )
    assert refusal(RunConfig(device_ids=("GPU-01ab",)), 3).endswith(" Did you mean 'GPU-01aa'?")


def test_one_gpu_by_two_names() -> None:
    assert "names a GPU twice" in refusal(RunConfig(device_ids=("1", "GPU-01aa")), 4)


def test_a_batch_that_does_not_divide() -> None:
    assert "cannot be split evenly over 3 devices; 48 or 51 can" in refusal(
        RunConfig(global_batch_size=50, devices=3), 4
    )
    # The count follows from the GPUs that are named.
    assert "cannot be split evenly over 3 devices" in refusal(
        RunConfig(global_batch_size=50, device_ids=("0", "1", "2")), 4
    )


def test_a_devices_part_that_makes_no_equal_parts() -> None:
    assert refusal(RunConfig(devices=2, accumulate=5), 4) == (
        "accumulate: 24 examples of each device make no 5 equal parts: use a divisor of 24."
    )
    message = "mxnet-gluon takes a batch as a whole: use 1, or another backend."
    (problem,) = cross_check(RunConfig(backend="mxnet-gluon", devices=2, accumulate=2))
    assert problem.message == message


def test_as_a_check_of_a_whole_configuration() -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(
            {"devices": 6, "global_batch_size": 50, "optimizer": "x"},
            checks=[lambda c: placement_problems(c, machine(4))],
        )
    assert [problem.key for problem in caught.value.problems] == ["optimizer", "devices"]


@pytest.mark.parametrize("platform", ["cpu", "auto"])
def test_data_parallel_has_one_cpu_device(platform: str) -> None:
    config = RunConfig(backend="torch-dp", platform=platform)
    assert place(config, machine(0)).devices == 1
    message = refusal(msgspec.structs.replace(config, devices=2), 0)
    assert message == "devices: torch-dp runs on one CPU device only, not on 2; use torch-ddp for more."
    # On GPUs it takes as many as there are.
    assert place(RunConfig(backend="torch-dp"), machine(4)).devices == 4


def test_the_path_of_a_data_set_is_made_exact(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(home / "mine.npz", make_arrays(train=50))
    monkeypatch.chdir(home)
    for path in ("mine.npz", "~/mine.npz", f"{home}/mine.npz"):
        placed = place(RunConfig(dataset=f"npz:{path}", model="mlp", devices=2), machine(0))
        assert placed.dataset == f"npz:{home}/mine.npz"
        assert parse_toml(to_toml(placed), "run.toml")[0] == placed
        assert (make_plan(placed).steps_per_epoch, make_plan(placed).total_steps) == (1, 10)


def test_a_data_set_that_is_missing_or_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    config = RunConfig(dataset=f"npz:{path}")
    assert refusal(config, 0) == f"dataset: {path} cannot be read: No such file or directory."
    write_npz(path, {})
    assert "has no array x_train" in refusal(config, 0)
    # What only the file tells does not keep a preset or a run.toml from being read.
    assert parse_toml(to_toml(config), "run.toml")[0] == config


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_images_too_small_for_a_model(tmp_path: Path, model: str) -> None:
    side = MODELS[model].min_side
    name = write_npz(tmp_path / "mine.npz", make_arrays((side, side + 1)))
    assert place(RunConfig(dataset=name, model=model), machine(0)).dataset == name
    if side > 1:
        small = write_npz(tmp_path / "small.npz", make_arrays((side + 1, side - 1)))
        message = refusal(RunConfig(dataset=small, model=model), 0)
        assert message.startswith(f"model: {model} needs images of at least {side}×{side} pixels")
        assert message.endswith(f"have {side + 1}×{side - 1}.")


@pytest.mark.parametrize("augment", ["flip", "crop-flip"])
def test_features_that_have_no_left_and_right(tmp_path: Path, augment: str) -> None:
    data = write_npz(tmp_path / "rows.npz", make_arrays((1, 30, 1)))
    config = RunConfig(dataset=data, model="mlp", augment=augment)
    words = "rows of 30 features, which have no left and right: use mixup or off."
    assert refusal(config, 0) == f"augment: {data} has {words}"
    assert place(msgspec.structs.replace(config, augment="mixup"), machine(0)).augment == "mixup"


@pytest.mark.parametrize(("key", "value", "off"), [("label_smoothing", 0.1, "0"), ("augment", "mixup", "off")])
def test_what_changes_cross_entropy_is_refused_beside_a_loss_of_ones_own(
    key: str, value: object, off: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("def net(shape, classes): ...\ndef loss(outputs, targets): ...\n")
    config = RunConfig(model=f"py:{tmp_path}/own.py:net")
    place(config, machine(0))
    words = refusal_on_files(msgspec.structs.replace(config, **{key: value}))
    assert words.startswith(f"{key}: changes what cross entropy is taken of, but the file of py:")
    assert words.endswith(f"own.py:net has a loss of its own: use {off}, or rename the loss.")
    (tmp_path / "own.py").write_text("import ast as loss\ndef net(shape, classes): ...\n")
    place(msgspec.structs.replace(config, **{key: value}), machine(0))


def refusal_on_files(config: RunConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        place(config, machine(0))
    (problem,) = caught.value.problems
    return str(problem)
