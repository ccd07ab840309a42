"""PyTorch on a GPU, with stand-ins for its streams, events and allocators."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.kit.waiting import wait_until
from tuiapp.trainers.contract.events import FrameworkMemory
from tuiapp.trainers.frameworks.jax import devices as jax_devices
from tuiapp.trainers.frameworks.torch import ranks as torch_ranks
from tuiapp.trainers.frameworks.torch.copies import Copies, stage, to_host
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.tensor_files import as_float32
from tuiapp.trainers.sources.arrays import AHEAD, StoredImages, prefetch

pytestmark = pytest.mark.nightly


CPU = torch.device("cpu")
DEADLINE_S = 30.0


class Event:
    """Its copy is made once the test has said so; whoever waits for it before is known."""

    def __init__(self, *, blocking: bool) -> None:
        assert blocking
        self.made, self.waiting = threading.Event(), threading.Event()

    def record(self, stream: object) -> None:
        assert stream == "copies"
        self.made.clear()

    def synchronize(self) -> None:
        self.waiting.set()
        assert self.made.wait(DEADLINE_S)


class Steps:
    """The stream of the steps: which copies it waits for, and how many results of copies are kept for it."""

    def __init__(self) -> None:
        self.waited: list[Event] = []
        self.kept = 0

    def wait_event(self, event: Event) -> None:
        self.waited.append(event)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps, within = Steps(), list[object]()
    empty = torch.empty

    @contextmanager
    def on(stream: object) -> Iterator[None]:
        within.append(stream)
        yield
        within.pop()

    def pinned(shape: tuple[int, ...], *, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        assert pin_memory
        return empty(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", pinned)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "copies")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: within[-1] if within else steps)

    def keep(moved: torch.Tensor, stream: object) -> None:
        assert stream is steps
        steps.kept += 1

    # On the CPU the "copy" is the buffer itself: what is read into it too early shows.
    monkeypatch.setattr(torch.Tensor, "record_stream", keep)
    return steps


@pytest.fixture
def images() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (60, 4, 4, 3), dtype=np.uint8)


def test_a_buffer_is_read_into_again_only_when_it_is_copied(steps: Steps, images: npt.NDArray[np.uint8]) -> None:
    copies = Copies(StoredImages(images), CPU)
    first = copies.move(copies.read(slice(0, 5)))
    (event,) = steps.waited
    found: list[Any] = []
    # A smaller batch, as a test set's last.
    thread = threading.Thread(target=lambda: found.append(copies.read(slice(5, 8))))
    thread.start()
    try:
        wait_until(event.waiting.is_set, DEADLINE_S)
        np.testing.assert_array_equal(first.numpy(), images[:5])
    finally:
        event.made.set()
        thread.join()
    np.testing.assert_array_equal(copies.move(found[0]).numpy(), images[5:8])
    assert found[0].images.data_ptr() == first.data_ptr()
    assert steps.waited == [event, event]


@pytest.mark.parametrize("mapped", [True, False])
def test_batches_read_ahead_come_in_order_by_few_buffers(
    steps: Steps, images: npt.NDArray[np.uint8], tmp_path: Path, mapped: bool
) -> None:
    np.save(tmp_path / "x.npy", images)
    copies = Copies(StoredImages(np.load(tmp_path / "x.npy", mmap_mode="r") if mapped else images), CPU)
    order = np.random.default_rng(1).permutation(60).repeat(5).reshape(50, 6)
    memory = set()
    for rows, filled in zip(order, prefetch(order, copies.read), strict=True):
        moved = copies.move(filled)
        np.testing.assert_array_equal(moved.numpy(), images[rows])
        memory.add(moved.data_ptr())
        steps.waited[-1].made.set()
    assert len(steps.waited) == steps.kept == 50
    # Those read ahead, the one that is asked for, and those being copied.
    assert 2 <= len(memory) <= AHEAD + 3


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the streams were told, in its order."""
    told: list[str] = []

    @contextmanager
    def on(stream: Any) -> Iterator[None]:
        told.append("copy")
        yield

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "steps")
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append("keep"))
    return told


def test_what_is_staged_is_what_was_and_one_copy_a_type(told: list[str]) -> None:
    dice = np.random.default_rng(0)
    weight = torch.from_numpy(dice.random((4, 3, 2, 2), np.float32)).contiguous(memory_format=torch.channels_last)
    half = torch.from_numpy(dice.random((5,), np.float32)).bfloat16()
    tensors = {"weight": weight, "half": half, "step": torch.tensor(7.0), "count": torch.tensor([1, 2]), "bias": -half}
    wanted = {name: as_float32(array) for name, array in to_host(tensors, None).items()}
    copies = SimpleNamespace(device="cuda", wait_stream=lambda stream: told.append(f"after {stream}"))
    found = stage(tensors, cast(torch.cuda.Stream, copies))
    # The next update.
    for tensor in tensors.values():
        tensor.fill_(0)
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(as_float32(array), wanted[name], err_msg=name)
        assert (array.shape, array.flags.c_contiguous) == (tuple(tensors[name].shape), True)
    assert told == ["after steps", "copy", "keep"] * 3


def test_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory_stats(device: torch.device) -> dict[str, int]:
        figures = {"allocated_bytes.all.current": 10, "allocated_bytes.all.peak": 20, "reserved_bytes.all.current": 30}
        return {name: value + device.index for name, value in figures.items()}

    monkeypatch.setattr(torch.cuda, "memory_stats", memory_stats)
    report = cast(Reporter, SimpleNamespace(memory=None))
    torch_ranks.report_memory(report, {0: torch.device("cuda", 0), 3: torch.device("cuda", 1)})
    assert report.memory is not None
    first, second = report.memory()
    assert (first.rank, first.used_bytes, first.peak_bytes, first.reserved_bytes) == (0, 10, 20, 30)
    assert (second.rank, second.used_bytes, second.peak_bytes, second.reserved_bytes) == (3, 11, 21, 31)


def test_jax() -> None:
    figures = {"bytes_in_use": 1, "peak_bytes_in_use": 2, "pool_bytes": 3, "bytes_limit": 4, "num_allocs": 5}
    devices: Any = [SimpleNamespace(memory_stats=lambda: figures), SimpleNamespace(memory_stats=lambda: None)]
    [told] = jax_devices.framework_memory(devices)
    assert told == FrameworkMemory(
        rank=0, used_bytes=1, peak_bytes=2, reserved_bytes=3, limit_bytes=4, time=told.time, mono=told.mono
    )


def test_the_cpu_tells_nothing() -> None:
    assert jax_devices.framework_memory(jax.devices("cpu")) == []
