"""Batches copied to a GPU, with stand-ins for its streams and events: a copy is made when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.kit.waiting import wait_until
from tuiapp.trainers.frameworks.torch.copies import Copies
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
