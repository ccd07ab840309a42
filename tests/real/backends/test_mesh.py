"""Meshes of two axes: the curve of one device, from a part of each weight on each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched, resumed
from tests.kit.recorder import Recorder, Shelf, check_predictions, train
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.config.catalog import MODELS, backends_with
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.memory import estimate_memory
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.contract.events import Differing, Replicas
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.frameworks.jax.mesh import DeviceMesh, exchanged
from tuiapp.trainers.frameworks.jax.replicas import replica_checksums
from tuiapp.trainers.rank.checkpoints import load
from tuiapp.trainers.rank.replicas import find_differing
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="mlp", platform="cpu", max_steps=20, global_batch_size=12, schedule="cosine", gradient_clip=1.0,
    checkpoint_every=0,
)  # fmt: skip
MESHES = {"batch=4": 4, "batch=2,model=2": 4, "model=4": 4, "model=2": 2, "model=1": 1}
BACKENDS = mostly_by_hand(backends_with("mesh"), "jax-sharding")


def _config(backend: str, mesh: str, **changes: object) -> RunConfig:
    return msgspec.structs.replace(CONFIG, backend=backend, mesh=mesh, devices=MESHES[mesh], **changes)


@cache
def _trained(config: RunConfig) -> tuple[Recorder, Shelf]:
    """Once a test's process: compiling takes longer than the steps."""
    shelf = Shelf()
    return train(config, save_at=8, shelf=shelf), shelf


def _means(told: Recorder) -> list[float]:
    return [sum(losses) / len(losses) for losses in told.losses()]


@pytest.mark.parametrize("mesh", [mesh for mesh in MESHES if mesh != "model=1"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_mesh_gives_the_curve_of_one_device(backend: str, mesh: str) -> None:
    (one, _), (told, _) = _trained(_config(backend, "model=1")), _trained(_config(backend, mesh))
    assert np.array(told.losses()).shape == (20, MESHES[mesh])
    assert_close(_means(told), _means(one), in_training(CONFIG))
    assert _means(one)[-1] < 0.9 * _means(one)[0]
    assert_close(told.evaluations[-1].loss, one.evaluations[-1].loss, in_training(CONFIG))
    assert told.evaluations[-1].accuracy == one.evaluations[-1].accuracy
    check_predictions(told.found[-1], told.evaluations[-1].accuracy, datasets.load(find_dataset("digits")).y_test)
    assert [(len(told.compared), one.differing) for one in told.compared] == [(1, [])]
    # Devices along "model" have the same examples, which are counted once in all.
    assert sum(step.examples * MESHES[mesh] for step in told.steps) == 20 * 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_device_holds_its_part_of_weights_and_optimizer_state(backend: str) -> None:
    whole = sum(4 * int(np.prod(shape)) for shape in MODELS["mlp"].size((28, 28, 1), 10).weights.values())
    for mesh, parts in {"model=2": 2, "model=4": 4, "batch=2,model=2": 2}.items():
        config = _config(backend, mesh)
        told, _ = _trained(config)
        assert [one.rank for one in told.held] == list(range(config.devices))
        planned = estimate_memory(config)
        for one in told.held:
            assert one.whole["parameters"] == whole
            assert one.held["parameters"] == planned.parameters
            # Beside the averages of the gradients there are some numbers, such as the steps made.
            assert planned.optimizer <= one.held["optimizer"] <= planned.optimizer + 16
            assert one.held["parameters"] == pytest.approx(whole / parts, rel=0.02)
        weights = {name: array for name, array in told.arrays.items() if name.startswith("parameter")}
        assert len(weights) == 6
        first = next(array for name, array in weights.items() if name.endswith(("fc1.kernel", "fc1/kernel")))
        assert (first.mesh, first.spec) == ({"batch": config.devices // parts, "model": parts}, [None, "model"])
        width = 256 // parts
        starts = [width * (rank % parts) for rank in range(config.devices)]
        assert [shard.index for shard in first.shards] == [[(0, 784), (start, start + width)] for start in starts]
        assert [shard.rank for shard in first.shards] == list(range(config.devices))
        moments = [array for name, array in told.arrays.items() if name.startswith("optimizer")]
        assert len(moments) == 2
        assert all([shard.index for shard in one.shards] == [shard.index for shard in first.shards] for one in moments)
        said = {array.why_whole for array in weights.values()} - {""}
        assert said == ({"10 is not divisible by 4"} if parts == 4 else set())
        assert told.held[0].exchanged["forward"]["all-gather"] > 0
    # Of a replica nothing is said that is not said of all of it.
    assert _trained(_config(backend, "batch=4"))[0].held == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_device_holds_counts_the_averaged_weights(backend: str) -> None:
    config = _config(backend, "model=2", ema=0.9, freeze="*bias", max_steps=1)
    held = train(config).held
    assert len(held) == 2
    size = MODELS["mlp"].size((28, 28, 1), 10).weights
    averaged = [name for name in size if not (backend == "keras-jax" and name.endswith("bias"))]
    whole = sum(4 * int(np.prod(size[name])) for name in averaged)
    for one in held:
        assert (one.held["average"], one.whole["average"]) == (whole // 2, whole)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_goes_on_bit_for_bit_and_on_other_meshes(backend: str) -> None:
    config = _config(backend, "batch=2,model=2")
    whole, shelf = _trained(config)
    saved = shelf.saved[8]
    again = train(config, shelf=Shelf(saved))
    assert again.losses() == whole.losses()[8:]
    assert again.evaluations == whole.evaluations
    # Checkpoints hold whole arrays, the same on any mesh.
    other = _trained(_config(backend, "batch=4"))[1].saved[8]
    for mine, theirs in ((saved.model, other.model), (saved.state, other.state)):
        assert {name: array.shape for name, array in mine.items()} == {
            name: array.shape for name, array in theirs.items()
        }
    for mesh, start in (("batch=4", saved), ("batch=2,model=2", other), ("model=2", other), ("model=1", saved)):
        told = train(_config(backend, mesh), shelf=Shelf(start))
        assert_close(_means(told), _means(whole)[8:], in_training(CONFIG))
        assert_close(told.evaluations[-1].loss, whole.evaluations[-1].loss, in_training(CONFIG))


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", backends_with("mesh"))
def test_a_launched_run_goes_on_on_another_mesh_and_is_exported(backend: str, tmp_path: Path) -> None:
    config = _config(backend, "batch=2,model=2", checkpoint_every=1, max_steps=12)
    with launched(config, tmp_path) as run:
        assert run.end().status == "completed"
        assert [one.differing for one in run.of(Replicas)] == [[]]
        run.wait_gone()
        first = run.losses(0)
        assert (run.losses(1), run.losses(3)) == (first, run.losses(2))
        with resumed(run.run, msgspec.structs.replace(config, mesh="batch=4", max_steps=20)) as again:
            assert again.end().status == "completed"
            assert len(again.losses(3)) >= 8
            again.wait_gone()
        before, after = (one.loss for one in (run.evaluations()[0], run.evaluations()[-1]))
        assert before is not None
        assert after is not None
        assert after < before
        assert list((run.run.path / "export").glob("model.*"))
    # Whole arrays, which any mesh can take up.
    shapes = [array.shape for array in load(list_checkpoints(run.run.checkpoints)[0][0]).model.values()]
    assert sorted(shapes) == sorted(MODELS["mlp"].size((28, 28, 1), 10).weights.values())


FLAX = """
import flax.linen as nn

class Net(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.classes, name="last")(nn.Dense(8, name="first")(x.reshape(len(x), -1)))

def net(shape, classes):
    return Net(classes)
"""
KERAS = """
import keras

def net(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(8, name="first"), keras.layers.Dense(classes, name="last")]
    return keras.Sequential([keras.Input(shape), *layers])
"""


def _own(backend: str, file: Path, rules: str) -> dict[str, list[str | None]]:
    """How the weights of a model of the user's own are split."""
    file.write_text((KERAS if backend == "keras-jax" else FLAX) + (f"net.mesh_rules = {rules}\n" if rules else ""))
    told = train(_config(backend, "model=2", model=f"py:{file}:net", max_steps=1))
    found = {name.rpartition(" ")[2]: one.spec for name, one in told.arrays.items() if name.startswith("parameter")}
    return {"/".join(name.replace(".", "/").split("/")[-2:]): spec for name, spec in found.items()}


@pytest.mark.by_hand
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_of_ones_own_brings_its_rules(backend: str, tmp_path: Path) -> None:
    assert _own(backend, tmp_path / "ruled.py", "{'first.kernel': 0, 'first.bias': None, '.': -1}") == {
        "first/kernel": ["model", None],
        "first/bias": [None],
        "last/kernel": [None, "model"],
        "last/bias": ["model"],
    }
    # By default outputs.
    assert _own(backend, tmp_path / "plain.py", "")["first/kernel"] == [None, "model"]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("['kernel']", "it must be a regular expression of weights' names → the axis to split"),
        ("{'kernel': 'model'}", "it must be a regular expression"),
        ("{'(': 0}", "is no regular expression"),
        ("{'kernel': 5}", "a rule splits axis 5 of first.kernel, whose shape is"),
    ],
)
def test_rules_that_are_none(rules: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="mesh_rules of py:") as raised:
        _own("jax-sharding", tmp_path / f"bad{abs(hash(rules))}.py", rules)
    assert words in str(raised.value)


def test_equal_parts_are_compared() -> None:
    """Of a weight in two parts those of devices 0 and 2, and 1 and 3; of one that is whole all."""
    mesh = DeviceMesh(make_plan(_config("jax-sharding", "batch=2,model=2")), Recorder())  # type: ignore[arg-type]
    shardings = {"split.kernel": mesh.of_weight("split.kernel", (4,)), "whole": mesh.whole}
    tree = {name: jax.device_put(jnp.arange(4.0), sharding) for name, sharding in shardings.items()}
    assert mesh.parts_of(shardings) == [2, 1]

    def compared() -> list[Differing]:
        names, sums = replica_checksums(make_plan(CONFIG), tree, shardings)(tree)
        return find_differing(names, sums, mesh.parts_of(shardings))

    assert compared() == []
    for name in tree:
        shards = [jnp.array(shard.data) for shard in tree[name].addressable_shards]
        shards[3] = jax.device_put(shards[3].at[1].add(1), mesh.mesh.devices[1, 1])
        sound, tree[name] = tree[name], jax.make_array_from_single_device_arrays((4,), shardings[name], shards)
        assert compared() == [Differing(3, name)]
        tree[name] = sound


def test_what_a_program_exchanges() -> None:
    program = """
  %a = f32[2,8]{1,0} all-gather(%x), dimensions={0}, metadata={op_name="jit(step)/jvp(Net)/fc1/dot_general"}
  %b = (f32[4]{0}, bf16[2]{0}) all-reduce(%y, %z), metadata={op_name="jit(step)/transpose(jvp(Net))/fc1/dot"}
  %c = f32[3]{0} all-reduce-start(%y), metadata={op_name="jit(step)/add"}
  %d = f32[3]{0} all-reduce-done(%c)
  %e = f32[3]{0} add(%c, %c)
  %f = (f32[2]{0}, f32[8]{0}) all-gather-start(%y), metadata={op_name="jit(step)/mul"}
  %g = (f32[6]{0}, f32[6]{0}, u32[], u32[]) collective-permute-start(%y), metadata={op_name="jit(step)/jvp(Net)/bn"}
"""
    assert exchanged(program) == {
        "forward": {"all-gather": 64, "collective-permute": 24},
        "backward": {"all-reduce": 20},
        "update": {"all-reduce": 12, "all-gather": 32},
    }


def test_what_a_program_for_gpus_exchanges() -> None:
    """There an asynchronous all-reduce names what it is made of, too: lines as XLA prints them for an H100."""
    program = """
  %all-reduce-start.1 = ((f32[64]{0}), f32[64]{0}) all-reduce-start(%input_reduce_fusion.90), channel_id=2
  %all-reduce-done.1 = f32[64]{0} all-reduce-done(%all-reduce-start.1)
  %all-reduce-start.2 = ((f32[8]{0}, bf16[4]{0}), (f32[8]{0}, bf16[4]{0})) all-reduce-start(%a, %b), channel_id=3
  %all-reduce.2 = (f32[2]{0}, f32[2]{0}) all-reduce(%c, %d), channel_id=4
"""
    assert exchanged(program) == {"update": {"all-reduce": 256 + 40 + 16}}


def test_collectives_that_were_joined_have_the_name_of_what_takes_their_results() -> None:
    program = """
  %all-reduce-start = f32[24]{0} all-reduce-start(%wrapped_concatenate), metadata={scheduling_name="all-reduce-start"}
  %all-reduce-done = f32[24]{0} all-reduce-done(%all-reduce-start)
  %slice.1 = f32[12]{0} fusion(%all-reduce-done), metadata={op_name="jit(step)/jvp(ConvNet)/bn1/reduce_sum"}
  %add = f32[12]{0} fusion(%all-reduce-done, %slice.1), metadata={op_name="jit(step)/transpose(jvp(ConvNet))/add"}
"""
    assert exchanged(program) == {"forward": {"all-reduce": 96}}
