"""Which file a new run's weights come from, what of it fits, and which parameters are frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from tests.kit.small_checkpoints import CONFIG, save
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig, to_toml
from tuiapp.trainers.contract.events import Alert, InitialWeights
from tuiapp.trainers.contract.manifest import MODEL_FILE
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.rank.initial import frozen_names, initial_weights
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.tensor_files import encode
from tuiapp.trainers.state.messages import describe_initial
from tuiapp.trainers.state.resume_point import check_weights, find_weights

NAMES = ["conv1.weight", "conv1.bias", "fc.weight", "fc.bias"]


def _of_step(run: RunDir, step: int) -> Path:
    return run.checkpoints / f"step-{step:08d}" / MODEL_FILE


def test_of_a_run_the_best_checkpoint_then_the_newest_then_what_it_exported(run: RunDir) -> None:
    run.config.write_text(to_toml(CONFIG))
    with pytest.raises(ConfigError, match=f"init_from: {run.run_id} has no checkpoint yet"):
        find_weights(str(run.path))
    run.export.mkdir()
    (run.export / MODEL_FILE).write_bytes(b"")
    assert find_weights(str(run.path)) == find_weights(str(run.export)) == run.export / MODEL_FILE
    save(run, 10, 20)
    assert find_weights(str(run.path)) == _of_step(run, 20)
    save(run, 30, 40, 50, accuracy={30: 0.9, 40: 0.8}, loss={30: 0.5, 40: 0.4})
    assert find_weights(str(run.path)) == _of_step(run, 30)
    run.config.write_text(to_toml(msgspec.structs.replace(CONFIG, best="loss")))
    assert find_weights(str(run.path)) == _of_step(run, 40)
    # One that is named is that one.
    assert find_weights(str(_of_step(run, 50).parent)) == find_weights(str(_of_step(run, 50))) == _of_step(run, 50)


@pytest.mark.parametrize("value", ["/nowhere", "/nowhere/x.safetensors", "/", "x\n"])
def test_what_is_no_source_is_refused(value: str) -> None:
    (problem,) = check_weights(RunConfig(init_from=value))
    assert problem.key == "init_from"
    assert problem.message.startswith(repr(value))
    assert "is no run, no run's directory, and no .safetensors file" in problem.message


def test_a_launch_fixes_the_file_and_a_resume_no_longer_needs_it(
    run: RunDir, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.config.write_text(to_toml(CONFIG))
    save(run, 10, 20)
    monkeypatch.chdir(run.path.parent)
    config = msgspec.structs.replace(CONFIG, init_from=run.run_id)
    placed = prepare(config, machine).config
    assert placed.init_from == str(_of_step(run, 20))
    damaged = bytearray(_of_step(run, 20).read_bytes())
    damaged[-1] ^= 1
    _of_step(run, 20).write_bytes(damaged)
    with pytest.raises(ConfigError, match="is damaged: its checksum does not match: name another checkpoint"):
        prepare(config, machine)
    _of_step(run, 20).unlink()
    with pytest.raises(ConfigError, match="is no run"):
        prepare(placed, machine)
    assert prepare(placed, machine, resumes=True).config == placed


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 102\n"
STAND_INS = {
    POINTER: "is a Git LFS pointer, not the file itself: `git lfs pull`",
    "<!DOCTYPE html>\n<html><body>404</body></html>": "is an HTML page, such as a download's error page",
    "\ufeff \n<HTML lang='en'>Sign in": "is an HTML page",
    "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>": "is an XML page",
}


@pytest.mark.parametrize("content", STAND_INS)
@pytest.mark.parametrize("name", ["x.safetensors", "x.safetensors.index.json", "shard.safetensors", "dir"])
def test_what_a_failed_download_left_is_named_before_anything_starts(tmp_path: Path, name: str, content: str) -> None:
    value = file = tmp_path / (f"{name}/{MODEL_FILE}" if name == "dir" else name)
    file.parent.mkdir(exist_ok=True)
    if name == "shard.safetensors":
        value = tmp_path / "x.safetensors.index.json"
        value.write_text('{"weight_map": {"a": "shard.safetensors"}}')
    file.write_text(content)
    (problem,) = check_weights(RunConfig(init_from=str(file.parent if name == "dir" else value)))
    assert problem.message.startswith(f"{file.name} {STAND_INS[content]}")
    with pytest.raises(ConfigError, match="Git LFS" if content == POINTER else "page"):
        _initial(value, {"a": (1,)})


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("{}", "x.safetensors.index.json is no index of weights: "),
        ("[", "x.safetensors.index.json is no index of weights: "),
        ('{"weight_map": {"a": "../b.safetensors"}}', "names '../b.safetensors', which is no file beside it"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors cannot be read: No such file"),
    ],
)
def test_an_index_that_leads_nowhere_is_refused(tmp_path: Path, index: str, says: str) -> None:
    file = tmp_path / "x.safetensors.index.json"
    file.write_text(index)
    (problem,) = check_weights(RunConfig(init_from=str(file)))
    assert says in problem.message


def test_an_index_reads_its_files(tmp_path: Path) -> None:
    one = {"a": np.ones((2, 3), np.float32), "old": np.ones(1, np.float32)}
    (tmp_path / "one.safetensors").write_bytes(b"".join(encode(one)))
    (tmp_path / "two.safetensors").write_bytes(b"".join(encode({"b": np.full(4, 2, np.float32)})))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}')
    assert find_weights(str(tmp_path)) == find_weights(str(index)) == index
    found = _initial(index, {"a": (2, 3), "b": (4,), "old": (1,)})
    assert {name: float(array.sum()) for name, array in found.items()} == {"a": 6.0, "b": 8.0}
    index.write_text('{"weight_map": {"c": "one.safetensors"}}')
    with pytest.raises(ConfigError, match=r"one\.safetensors has no c"):
        _initial(index, {"a": (2, 3)})


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        (["module.fc.weight", "module.fc.bias"], ["fc.weight", "fc.bias"]),
        (["_orig_mod.fc.weight", "_orig_mod.fc.bias"], ["fc.weight", "fc.bias"]),
        (["module._orig_mod.fc.weight", "_orig_mod.module.fc.bias"], ["fc.weight", "fc.bias"]),
        (["fc.weight", "module.fc.bias"], ["fc.weight", "fc.bias"]),
        (["trunk._orig_mod.0.weight", "module.trunk._orig_mod.0.bias"], ["trunk.0.weight", "trunk.0.bias"]),
        (["fc.weight", "fc.bias"], ["module.fc.weight", "module.fc.bias"]),
        (["module.weight", "module.bias"], ["module.weight", "module.bias"]),
        (["submodule.weight", "module.submodule.bias"], ["submodule.weight", "submodule.bias"]),
    ],
)
def test_what_wrappers_put_into_names_does_not_matter(tmp_path: Path, theirs: list[str], here: list[str]) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"".join(encode({name: np.full(2, at, np.float32) for at, name in enumerate(theirs)})))
    found = _initial(file, dict.fromkeys(here, (2,)))
    assert {name: array[0] for name, array in found.items()} == {name: at for at, name in enumerate(here)}


@pytest.mark.parametrize(
    ("freeze", "frozen"),
    [
        ("", []),
        (" , ", []),
        ("conv*", ["conv1.weight", "conv1.bias"]),
        ("*.bias,fc.weight", ["conv1.bias", "fc.weight", "fc.bias"]),
        ("fc.bias conv1.[bx]ias", ["conv1.bias", "fc.bias"]),
        ("params.fc.*", ["fc.weight", "fc.bias"]),
    ],
)
def test_patterns_name_what_is_frozen(freeze: str, frozen: list[str]) -> None:
    assert frozen_names(freeze, NAMES, "params.") == set(frozen)


@pytest.mark.parametrize(
    ("freeze", "says"),
    [
        ("conv*,head*", "freeze: 'head*' names no parameter; there are: conv1.weight, conv1.bias, fc.weight, fc.bias."),
        ("Conv*", "freeze: 'Conv*' names no parameter"),
        ("conv* fc*", "freeze: 'conv* fc*' names all 4 parameters, which leaves nothing to train"),
    ],
)
def test_patterns_that_say_nothing_are_refused(freeze: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        frozen_names(freeze, NAMES)
    assert str(refused.value).startswith(says)


class Told:
    """Stands in for a reporter."""

    def __init__(self) -> None:
        self.events: list[InitialWeights | Alert] = []

    def send_from_rank0(self, found: InitialWeights | Alert) -> None:
        self.events.append(found)


def _initial(file: Path, shapes: dict[str, tuple[int, ...]], told: Told | None = None) -> dict[str, npt.NDArray[Any]]:
    plan = make_plan(msgspec.structs.replace(CONFIG, init_from=str(file)))
    return initial_weights(plan, cast(Reporter, told or Told()), shapes, list(shapes), [])


def test_what_matched_is_told_and_an_alert_names_what_is_frozen_but_new(tmp_path: Path) -> None:
    file, told = tmp_path / "x.safetensors", Told()
    theirs = {"a": np.ones((2, 3), np.float32), "b": np.ones(3, np.float32), "old": np.ones(1, np.float32)}
    file.write_bytes(b"".join(encode(theirs)))
    plan = make_plan(msgspec.structs.replace(CONFIG, init_from=str(file)))
    shapes = {"a": (2, 3), "b": (4,), "new": (5, 2)}
    found = initial_weights(plan, cast(Reporter, told), shapes, list(shapes), ["a", "b"])
    assert found.keys() == {"a"}
    event, alert = told.events
    assert isinstance(event, InitialWeights)
    assert describe_initial(event) == (
        "initial weights: 1 of 3 arrays from x.safetensors · of another shape: b [3], here [4] · not there: new · "
        "left over: old · frozen: 10 of 20 parameters"
    )
    assert isinstance(alert, Alert)
    assert alert.text == "frozen, but not taken over, so that they stay as the seed has them: b"
    many = {f"layer{number}": (1,) for number in range(40)}
    initial_weights(plan, cast(Reporter, told), {"a": (2, 3), **many}, [], [])
    assert isinstance(last := told.events[-1], InitialWeights)
    assert (len(last.missing), last.missing[-1]) == (17, "24 more")
