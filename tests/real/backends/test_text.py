"""A language model on a text: the curve of a loop written by hand, on every backend and number of devices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kit.close import assert_close, in_training
from tests.kit.harness import launched, resumed
from tests.kit.only_rank import train_alone
from tests.kit.recorder import Recorder, Shelf, train
from tests.kit.reported import values
from tests.kit.variants import mostly_by_hand
from tests.kit.weights import from_torch, into_keras, keras_arrays
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import UserCodeError
from tuiapp.trainers.contract.events import Metrics, Predictions
from tuiapp.trainers.contract.metrics import TEST_LOSS
from tuiapp.trainers.frameworks.jax import models as flax_models
from tuiapp.trainers.frameworks.jax.state import create, snapshot
from tuiapp.trainers.frameworks.keras import models as keras_models
from tuiapp.trainers.frameworks.torch import models as torch_models
from tuiapp.trainers.rank import tensor_files
from tuiapp.trainers.rank.checkpoints import Saved
from tuiapp.trainers.sources.datasets import SHAKESPEARE_FILE

pytestmark = pytest.mark.nightly

CONTEXT, BATCH, STEPS = 32, 8, 20
CONFIG = RunConfig(
    model="gpt-small", dataset="shakespeare", context=CONTEXT, platform="cpu", devices=1, global_batch_size=BATCH,
    optimizer="adamw", weight_decay=0.1, gradient_clip=1.0, warmup_steps=5, epochs=1,
    max_steps=STEPS, checkpoint_every=0, seed=3,
)  # fmt: skip
TEXT = SHAKESPEARE_FILE.read_bytes()
MIDDLE = len(TEXT) - len(TEXT) // 10


Curve: TypeAlias = tuple[list[float], float]
"""The loss of each step, and that of the test part after them."""


def windows(part: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Windows side by side, and the byte after each of theirs, [N, context]."""
    starts = range(0, len(part) - CONTEXT, CONTEXT)
    found = np.array([list(part[start : start + CONTEXT + 1]) for start in starts])
    return found[:, :-1], found[:, 1:]


class Bare(nn.Module):
    """The model of PyTorch's own layers, with the weights of ours."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        state = ours.state_dict()
        self.tokens, self.places = nn.Embedding(256, 128), nn.Embedding(CONTEXT, 128)
        layer = nn.TransformerEncoderLayer(
            128, 4, 512, dropout=0.0, activation=lambda x: F.gelu(x, approximate="tanh"), batch_first=True,
            norm_first=True,
        )  # fmt: skip
        norm = nn.LayerNorm(128)
        self.blocks = nn.TransformerEncoder(layer, 4, norm=norm, enable_nested_tensor=False)
        self.head = nn.Linear(128, 256, bias=False)
        named = {"tokens.weight": "tokens.weight", "places.weight": "places.weight", "head.weight": "head.weight"}
        named |= {f"norm.{name}": f"blocks.norm.{name}" for name in ("weight", "bias")}
        for number in range(4):
            pairs = {
                "norm1": "norm1",
                "norm2": "norm2",
                "out": "self_attn.out_proj",
                "fc1": "linear1",
                "fc2": "linear2",
            }
            for mine, its in pairs.items():
                for name in ("weight", "bias"):
                    named[f"block{number + 1}.{mine}.{name}"] = f"blocks.layers.{number}.{its}.{name}"
            for name in ("weight", "bias"):
                named[f"block{number + 1}.qkv.{name}"] = f"blocks.layers.{number}.self_attn.in_proj_{name}"
        self.load_state_dict({named[name]: tensor for name, tensor in state.items()})

    def forward(self, x: Tensor) -> Tensor:
        y = self.tokens(x) + self.places.weight
        logits: Tensor = self.head(
            self.blocks(y, nn.Transformer.generate_square_subsequent_mask(CONTEXT), is_causal=True)
        )
        return logits


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """More of them would wait for each other where other tests have the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def by_hand() -> Curve:
    return train_by_hand(nullcontext())


def train_by_hand(precision: AbstractContextManager[object]) -> Curve:
    """The losses of the steps, and that of the test part after them, by a loop that uses nothing of ours."""
    torch.manual_seed(CONFIG.seed)
    model = Bare(torch_models.build("gpt-small", (CONTEXT,), 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=CONFIG.learning_rate, weight_decay=0.1)
    x, y = map(torch.from_numpy, windows(TEXT[:MIDDLE]))
    order = np.random.Generator(np.random.PCG64([CONFIG.seed, 1])).permutation(len(x))
    losses = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = CONFIG.learning_rate * min(1, (step + 1) / 5)
        rows = order[step * BATCH : (step + 1) * BATCH]
        with precision:
            loss = F.cross_entropy(model(x[rows]).reshape(-1, 256), y[rows].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    x, y = map(torch.from_numpy, windows(TEXT[MIDDLE:]))
    with torch.no_grad(), precision:
        test = F.cross_entropy(model.eval()(x).reshape(-1, 256), y.reshape(-1)).item()
    return losses, test


def check(told: Recorder, losses: list[float], test: float, precision: str = "float32") -> None:
    """The loop's may be in float32, or in bfloat16."""
    within = in_training(CONFIG, dtype=precision)
    assert_close(np.mean(np.reshape(told.losses(), (STEPS, -1)), axis=1), losses, within)
    found = told.evaluations[-1]
    assert_close(found.loss, test, within)
    assert found.perplexity == pytest.approx(math.exp(found.loss), rel=1e-6)
    check_shown(told.found[-1])


def check_shown(found: Predictions) -> None:
    _, labels = windows(TEXT[MIDDLE:])
    assert [sum(row) for row in found.counts] == np.bincount(labels.ravel(), minlength=256).tolist()
    for one in found.worst:
        assert labels.ravel()[one.number] == one.label
    assert [len(text) for text in found.samples] == [CONTEXT - 1] * 2


@pytest.mark.parametrize("backend", ["torch-ddp", "torch-fsdp"])
def test_one_rank_has_the_curve_of_the_loop(backend: str, by_hand: Curve) -> None:
    check(train_alone(msgspec.structs.replace(CONFIG, backend=backend)), *by_hand)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case",
    mostly_by_hand(
        [
            *[("torch-ddp", 2, 1), ("torch-ddp", 2, 2), ("torch-ddp", 4, 2)],
            *[("torch-fsdp", 2, 1), ("torch-fsdp", 4, 1)],
            *[("keras-torch", 1, 1), ("keras-torch", 2, 1), ("keras-torch", 2, 2), ("keras-torch", 2, 2, "float16")],
        ],
        ("torch-ddp", 2, 1),
    ),
    ids=lambda case: "-".join(map(str, case)),
)
def test_several_ranks_have_it_and_go_on_bit_for_bit(
    case: tuple[str, int, int] | tuple[str, int, int, str], by_hand: Curve, tmp_path: Path
) -> None:
    backend, devices, accumulate, *precision = case
    config = msgspec.structs.replace(
        CONFIG, backend=backend, devices=devices, accumulate=accumulate, checkpoint_every=1
    )
    for one in precision:
        config = msgspec.structs.replace(config, precision=one)
    if backend == "keras-torch":
        file = tmp_path / "start.safetensors"
        file.write_bytes(b"".join(tensor_files.encode(in_keras())))
        config = msgspec.structs.replace(config, init_from=str(file))
    losses, test = by_hand
    with launched(config, tmp_path) as run:
        assert run.end().status == "completed"
        straight = [run.losses(rank) for rank in range(devices)]
        within = in_training(config)
        assert_close(np.mean(straight, axis=0), losses, within)
        assert_close(values(run.of(Metrics), TEST_LOSS)[-1], test, within)
        shown = run.of(Predictions)[-1]
        check_shown(shown)
    with launched(msgspec.structs.replace(config, max_steps=9), tmp_path) as run:
        assert run.end().status == "completed"
        run.wait_gone()
        with resumed(run.run, config) as again:
            assert again.end().status == "completed"
            assert [again.losses(rank)[-11:] for rank in range(devices)] == [curve[9:] for curve in straight]
            assert again.of(Predictions)[-1].samples == shown.samples


def start() -> nn.Module:
    """With the weights that the loop starts from."""
    torch.manual_seed(CONFIG.seed)
    return torch_models.build("gpt-small", (CONTEXT,), 256)


def in_keras() -> dict[str, npt.NDArray[np.float32]]:
    """Those weights under Keras' names."""
    model = keras_models.build("gpt-small", (CONTEXT,), 256)
    into_keras(start(), model)
    return keras_arrays(model)


def carried(config: RunConfig) -> Saved:
    """A checkpoint before the first step, with those weights."""
    if config.backend == "keras-jax":
        shelf = Shelf()
        train(config, stop_at=1, save_at=0, shelf=shelf)
        return shelf.saved[0]._replace(model=in_keras())
    state = create(make_plan(config))
    params = from_torch(start(), {"params": state.params})["params"]
    return Saved(0, *snapshot(state.replace(params=params)))


@pytest.mark.by_hand
@pytest.mark.parametrize("devices", mostly_by_hand([1, 2, 4], 2))
@pytest.mark.parametrize(
    "backend", mostly_by_hand(["jax-sharding", "jax-pmap", "keras-jax"], "jax-sharding", "keras-jax")
)
def test_jax_has_it_from_the_same_weights_on_any_devices(backend: str, devices: int, by_hand: Curve) -> None:
    config = msgspec.structs.replace(CONFIG, backend=backend, devices=devices)
    check(train(config, shelf=Shelf(carried(config))), *by_hand)


def entropy(part: bytes) -> float:
    """Of single bytes, in nats: the loss of a model that knows how frequent each is and nothing else."""
    return -sum(count / len(part) * math.log(count / len(part)) for count in Counter(part).values())


def test_a_short_training_learns_more_than_how_frequent_each_byte_is() -> None:
    config = msgspec.structs.replace(CONFIG, max_steps=100, schedule="config", learning_rate=0.003)
    told = train_alone(config)
    assert told.evaluations[-1].loss < entropy(TEXT[MIDDLE:]) - 0.2


OWN = """
import flax.linen as linen
import keras
from keras import layers
from torch import nn

def in_torch(shape, classes):
    return nn.Sequential(nn.Embedding(classes, 8), nn.Linear(8, classes))

def wrong_in_torch(shape, classes):
    return nn.Sequential(nn.Embedding(classes, 8), nn.Flatten(), nn.Linear(8 * shape[0], classes))

def in_flax(shape, classes):
    return linen.Sequential([linen.Embed(classes, 8), linen.Dense(classes)])

def wrong_in_flax(shape, classes):
    return linen.Sequential([linen.Embed(classes, 8), linen.Dense(classes), lambda x: x[:, -1]])

def in_keras(shape, classes):
    return keras.Sequential([layers.Embedding(classes, 8), layers.Dense(classes)])

def wrong_in_keras(shape, classes):
    return keras.Sequential([layers.Embedding(classes, 8), layers.Flatten(), layers.Dense(classes)])
"""


def test_a_model_of_ones_own_gives_logits_for_each_token(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    value = f"py:{tmp_path}/own.py:"
    assert torch_models.build(f"{value}in_torch", (16,), 256)(torch.zeros(3, 16, dtype=torch.long)).shape == (
        3,
        16,
        256,
    )
    tokens = flax_models.empty((16,))
    for name in ("in_flax", "in_keras", "wrong_in_torch", "wrong_in_flax", "wrong_in_keras"):
        expected = pytest.raises(UserCodeError, match=r"gives \[.*, 256\] for tokens \[., 16\]; it must give logits \[")
        with expected if "wrong" in name else nullcontext():
            if "flax" not in name:
                (torch_models if "torch" in name else keras_models).build(value + name, (16,), 256)
            else:
                flax_models.check_own(value + name, flax_models.own(value + name, (16,), 256), tokens, 256)
