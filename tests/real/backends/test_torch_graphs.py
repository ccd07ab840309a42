"""A step's passes as a CUDA graph, with a stand-in for the graph on the CPU: what was captured is computed again.

What CUDA itself does is for the proof on a GPU to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.kit.only_rank import train_alone
from tests.kit.recorder import Recorder, Shelf
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

CONFIG = RunConfig(
    model="convnet", platform="cpu", devices=1, epochs=1, max_steps=6, global_batch_size=24, schedule="cosine",
    checkpoint_every=0,
)  # fmt: skip
"""With dropout, BatchNorm, weights that are not trained, and a learning rate that changes."""

WAITS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
"""What makes the host wait for a GPU, which a capture forbids."""


class Capture(TorchDispatchMode):
    """Keeps each operation, and puts back what it changes: a capture computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], Any, Any, list[Any]]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self.made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in WAITS, func
        # Not all that an operation changes is in its schema: BatchNorm's running statistics are not.
        for given in tree_leaves((args, kwargs)):
            if torch.is_tensor(given) and id(given) not in self.made:
                self.before.setdefault(id(given), (given, given.detach().clone()))
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, tree_leaves(out)))
        self.made |= {id(one) for one in tree_leaves(out)} - self.before.keys()
        return out


class Graph:
    replays = 0

    def __init__(self) -> None:
        self.captured = Capture()

    @torch.no_grad()
    def replay(self) -> None:
        Graph.replays += 1
        for func, args, kwargs, out in self.captured.calls:
            for old, new in zip(out, tree_leaves(func(*args, **kwargs)), strict=True):
                # Of a view, and of what was changed in place, the memory is the same.
                if torch.is_tensor(old) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextmanager
def capturing(graph: Graph, *, capture_error_mode: str) -> Iterator[None]:
    assert capture_error_mode == "thread_local"
    drawn = torch.get_rng_state()
    with graph.captured:
        yield
    torch.set_rng_state(drawn)
    with torch.no_grad():
        for tensor, before in graph.captured.before.values():
            tensor.copy_(before)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, stand_in in {
        "CUDAGraph": Graph,
        "graph": capturing,
        "Stream": lambda device: stream,
        "current_stream": lambda device: stream,
        "stream": lambda stream: nullcontext(),
        "get_rng_state": lambda device: None,
        "set_rng_state": lambda state, device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(Graph, "replays", 0)


def both(**changes: Any) -> tuple[Recorder, Recorder]:
    """Trained with graphs, and without."""
    found = [train_alone(msgspec.structs.replace(CONFIG, **changes, cuda_graphs=graphs)) for graphs in (True, False)]
    return found[0], found[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd", "gradient_clip": 0.1, "ema": 0.9},
        {"optimizer": "adadelta", "accumulate": 2, "augment": "mixup"},
        {"precision": "bfloat16", "freeze": "conv1*"},
        {"precision": "float16", "optimizer": "adamw"},
        {"model": "gpt-small", "dataset": "shakespeare", "context": 8},
    ],
)
def test_the_curve_is_that_of_the_passes_one_by_one(changes: dict[str, Any]) -> None:
    ours, eager = both(**changes)
    assert Graph.replays == CONFIG.max_steps
    assert ours.losses() == eager.losses()
    assert [step.gradient_norm for step in ours.steps] == [step.gradient_norm for step in eager.steps]
    assert ours.evaluations == eager.evaluations


def test_a_resumed_run_captures_anew_and_goes_on_bit_for_bit() -> None:
    shelf, config = Shelf(), msgspec.structs.replace(CONFIG, cuda_graphs=True)
    whole = train_alone(config, shelf, save_at=3)
    rest = train_alone(config, Shelf(shelf.saved[3]))
    assert rest.losses() == whole.losses()[3:]
    assert rest.evaluations == whole.evaluations
