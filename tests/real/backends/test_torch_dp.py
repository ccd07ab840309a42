"""torch-dp on this process's one CPU device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
import torch
import torch._inductor.config

from tests.kit.close import assert_close, in_training
from tests.kit.model_tasks import IMAGE_MODELS
from tests.kit.recorder import Recorder, Shelf, check_predictions, train
from tuiapp.trainers.backends import torch_ddp, torch_dp
from tuiapp.trainers.backends.torch_dp import Autocast
from tuiapp.trainers.config.datasets import find_dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.media import decode
from tuiapp.trainers.frameworks.torch.losses import LossScale
from tuiapp.trainers.frameworks.torch.ranks import steps_in_flight
from tuiapp.trainers.rank.loop import STEPS_IN_FLIGHT
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_environment import LOOPBACK, bind_rendezvous
from tuiapp.trainers.sources import datasets

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    backend="torch-dp", model="mlp", platform="cpu", devices=1, epochs=2, max_steps=40, schedule="cosine",
    checkpoint_every=1,
)  # fmt: skip


@pytest.fixture
def _rendezvous(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a rank of torch-ddp finds in its environment."""
    with bind_rendezvous(LOOPBACK) as listener:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(listener.getsockname()[1]))
        # The store closes what it is given.
        monkeypatch.setenv(wire.STORE_FD, str(os.dup(listener.fileno())))
        yield


def _train(shelf: Shelf | None = None, *, stop_at: int = 0, save_at: int | None = None, **changes: object) -> Recorder:
    return train(msgspec.structs.replace(CONFIG, **changes), stop_at, save_at, shelf)


def test_what_is_told_from_first_to_last_step() -> None:
    shelf = Shelf()
    told = _train(shelf)
    assert told.ranks == [(0, "cpu")]
    assert told.phases == ["training", "evaluating", "checkpointing"] * 2
    assert [step.step for step in told.steps] == list(range(1, 41))
    assert {step.examples for step in told.steps} == {48}
    losses = np.array(told.losses())
    assert losses.shape == (40, 1)
    assert losses[-1, 0] < 0.5 * losses[0, 0]
    assert [(one.step, one.examples) for one in told.evaluations] == [(29, 360), (40, 360)]
    check_predictions(told.found[-1], told.evaluations[-1].accuracy, datasets.load(find_dataset("digits")).y_test)
    first = told.found[-1].worst[0]
    _, png, caption = told.shown[0]
    assert caption.startswith(f"{first.number}: {first.label}, taken for")
    image = datasets.load(find_dataset("digits")).x_test[first.number]
    np.testing.assert_array_equal(decode(png), image[..., 0])
    batch, labels, parameter = (told.arrays[name] for name in ("batch", "labels", "parameter fc1.weight"))
    assert (batch.shape, batch.mesh, batch.spec) == ([48, 1, 28, 28], {"batch": 1}, ["batch", None, None, None])
    # The outputs are gathered on the first device, where the labels are.
    assert (labels.shape, labels.spec) == ([48], [None])
    assert [(shard.rank, shard.index) for shard in parameter.shards] == [(0, [(0, 256), (0, 784)])]
    assert "optimizer exp_avg of fc1.weight" in told.arrays
    assert sorted(shelf.saved) == [29, 40]
    np.testing.assert_array_equal(shelf.exported["fc1.weight"], shelf.saved[40].model["fc1.weight"])


@pytest.mark.usefixtures("_rendezvous")
def test_the_same_curve_as_one_rank_of_torch_ddp() -> None:
    """With dropout, whose draws are the same too."""
    changes: dict[str, Any] = {"model": "convnet", "max_steps": 6, "global_batch_size": 24, "gradient_clip": 0.5}
    ours, theirs = _train(**changes), _train(backend="torch-ddp", **changes)
    curve = np.array(ours.losses())[:, 0]
    within = in_training(msgspec.structs.replace(CONFIG, **changes))
    assert_close(curve, np.ravel(theirs.losses()), within)
    assert_close(ours.evaluations[-1].loss, theirs.evaluations[-1].loss, within)


@pytest.mark.parametrize(("model", "optimizer"), [("mlp", "sgd"), ("mlp", "adadelta"), ("convnet", "adam")])
def test_resuming_goes_on_bit_for_bit(model: str, optimizer: str) -> None:
    """With dropout, BatchNorm, momentum, and a learning rate that changes."""
    changes: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "max_steps": 12,
        "global_batch_size": 24,
        "eval_every": 0,
    }
    shelf = Shelf()
    whole = _train(shelf, save_at=7, **changes)
    resumed = _train(Shelf(shelf.saved[7]), **changes)
    assert [step.step for step in resumed.steps] == list(range(8, 13))
    assert resumed.losses() == whole.losses()[7:]
    assert resumed.evaluations == whole.evaluations
    # Its arrays may lie elsewhere than those of the attempt before: it reports them anew.
    assert resumed.arrays.keys() == whole.arrays.keys()


class Event:
    """A CUDA event's stand-in; `waiting` has those that nobody has waited for."""

    waiting: ClassVar[list[Event]] = []
    most: ClassVar[int] = 0

    def __init__(self, *, blocking: bool) -> None:
        assert blocking

    def record(self, stream: tuple[str, torch.device]) -> None:
        assert stream == ("stream", torch.device("cpu"))
        Event.waiting.append(self)
        Event.most = max(Event.most, len(Event.waiting))

    def synchronize(self) -> None:
        assert Event.waiting.pop(0) is self


@pytest.mark.usefixtures("_rendezvous")
@pytest.mark.parametrize("backend", ["torch-dp", "torch-ddp"])
def test_on_a_gpu_each_step_is_waited_for_by_an_event(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    scale = LossScale(RunConfig(), torch.device("cpu"))
    on_gpu = steps_in_flight(torch.device("cuda", 0), scale)
    assert "wait" not in steps_in_flight(torch.device("cpu"), scale)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream", device))
    for module in (torch_dp, torch_ddp):
        monkeypatch.setattr(module, "steps_in_flight", lambda device, scale: {**on_gpu, "wait": Event.synchronize})
    Event.waiting, Event.most = [], 0
    told = _train(backend=backend)
    assert [step.step for step in told.steps] == list(range(1, 41))
    assert Event.waiting == []
    # The last one given, and those that may be in flight.
    assert Event.most == 1 + STEPS_IN_FLIGHT


@pytest.mark.parametrize(("precision", "dtype"), [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_the_thread_of_a_gpu_computes_in_the_type_asked_for(precision: str, dtype: torch.dtype) -> None:
    config, device = msgspec.structs.replace(CONFIG, precision=precision), torch.device("cpu")
    model = Autocast(torch.nn.Linear(2, 2), config, device)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(model, torch.ones(1, 2)).result().dtype == dtype


@pytest.mark.by_hand
@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_compiling_changes_no_number(model: str) -> None:
    """Dropout's draws included; and the first step is not the second one on that batch."""
    changes: dict[str, Any] = {
        "model": model,
        # Rounding grows from step to step in a deep network: as much so uncompiled, with another number of threads.
        "max_steps": 3 if model == "resnet18" else 30,
        "eval_every": 0,
        "optimizer": "sgd",
        "learning_rate": 0.001,
        "momentum": 0.0,
        "global_batch_size": 24,
    }
    plain, compiled = _train(**changes), _train(compile=True, **changes)
    assert compiled.phases[0] == "compiling"
    within = in_training(msgspec.structs.replace(CONFIG, **changes))
    assert_close(compiled.losses(), plain.losses(), within)
    assert_close(compiled.evaluations[-1].loss, plain.evaluations[-1].loss, within)
