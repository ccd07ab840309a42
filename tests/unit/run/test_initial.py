"""Which file a new run's weights come from, what of it fits, and which parameters are frozen."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
from safetensors import numpy as safetensors

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
from tuiapp.trainers.rank.tensor_files import encode, load
from tuiapp.trainers.state.initial import check_weights, find_weights
from tuiapp.trainers.state.messages import describe_initial

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

    def once(self, found: InitialWeights | Alert) -> None:
        self.events.append(found)


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


def test_without_the_keys_nothing_is_told() -> None:
    told = Told()
    assert initial_weights(make_plan(CONFIG), cast(Reporter, told), {"a": (1,)}, ["a"], []) == {}
    assert told.events == []


def test_files_of_other_programs_are_read(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    safetensors.save_file(arrays, file, metadata={"format": "pt"})
    assert (load(file)["w"] == arrays["w"]).all()
    file.write_bytes(file.read_bytes().replace(b'"F32"', b'"F8X"'))
    with pytest.raises(ValueError, match="w has the data type F8X"):
        load(file)
    file.write_bytes(b"PK\3\4 this is a zip file")
    with pytest.raises(ValueError, match="its header has"):
        load(file)
