"""Pictures and texts that a script logs: copied at the call, on their device; written by the client's thread."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from io import BytesIO
from time import monotonic
from typing import Any, Literal, NamedTuple

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.contract.events import Alert, Event
from tuiapp.trainers.contract.media import (
    CHANNELS,
    MAX_AT_ONCE,
    MAX_FILES,
    MAX_TEXT,
    Content,
    MediaFolder,
    decode,
    encode_png,
    to_pixels,
)
from tuiapp.trainers.contract.rundir import RunDir

MAX_CAPTION = 500
MAX_WAITING_BYTES = 64 << 20
"""Most bytes that wait to be written; beyond, and beyond `MAX_FILES` of a name, the last takes another's place."""
MAX_ALERTS = 8
WRITE_S = 0.1
"""Longest time for writing before numbers are sent."""


class Taken(NamedTuple):
    """A picture or text that nobody changes any more."""

    kind: Literal["image", "text"]
    data: Any
    """A text, the bytes of a file, an array on its device, or a picture of PIL's."""
    bytes: int
    caption: str = ""


class Image:
    """A picture for `tuiapp.log`, as wandb's: an array, a tensor, a picture of PIL's, a figure, or a file's path."""

    def __init__(self, data_or_path: Any, mode: str | None = None, caption: str | None = None, **_: Any) -> None:
        self._taken: list[Taken] = []
        self._error: Exception | None = None
        try:
            data = os.fspath(data_or_path) if isinstance(data_or_path, str | os.PathLike) else data_or_path
            for item in [_file(data)] if isinstance(data, str) else take(data):
                self._taken.append(item._replace(caption=printable(str(caption or item.caption)[:MAX_CAPTION])))
        except Exception as error:
            # Said where it is logged, and the script goes on.
            self._error = error


def take(value: Any) -> list[Taken]:
    """Copies a picture, a text, or several of them; raises TypeError if it is none, OSError for a file's."""
    if isinstance(value, Image):
        if value._error:
            raise value._error
        return value._taken
    if isinstance(value, str):
        text = printable(value[:MAX_TEXT])
        return [Taken("text", text, len(text))]
    if isinstance(value, list | tuple) and value:
        return [item for part in value[:MAX_AT_ONCE] for item in take(part)][:MAX_AT_ONCE]
    if isinstance(value, os.PathLike):
        return [_file(os.fspath(value))]
    if getattr(value, "__name__", "") == "matplotlib.pyplot":
        value = value.gcf()
    if _is(value, "matplotlib.figure", "Figure"):
        value.savefig(drawn := BytesIO(), format="png")
        return [Taken("image", drawn.getvalue(), len(drawn.getvalue()))]
    if _is(value, "PIL.Image", "Image"):
        return [Taken("image", value.copy(), value.width * value.height * 4)]
    is_tensor = _is(value, "torch", "Tensor")
    if not is_tensor and not _is(value, "numpy", "ndarray") and not _is(value, "jax", "Array"):
        raise TypeError("neither a picture nor a text")
    if value.ndim == 4:
        return [item for part in value[:MAX_AT_ONCE] for item in take(part)]
    sides = [side for index, side in enumerate(value.shape) if value.ndim == 2 or index != _channels(value.shape)]
    if len(sides) != 2 or min(sides) < 2:
        raise TypeError(f"of shape {list(value.shape)}")
    # On a device the copy is made in the order of its other work: nothing waits for it.
    return [Taken("image", value.detach().clone() if is_tensor else value.copy(), int(value.nbytes))]


def _channels(shape: tuple[int, ...]) -> int:
    return next((axis for axis in (2, 0) if len(shape) == 3 and shape[axis] in CHANNELS), -1)


def _is(value: Any, module: str, name: str) -> bool:
    """Tells whether a value is of a class of a module that is not imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _file(path: str) -> Taken:
    with open(path, "rb") as file:
        data = file.read(MAX_WAITING_BYTES)
    return Taken("image", data, len(data))


def _content(taken: Taken) -> Content:
    """Returns what its file holds; raises what its framework raises."""
    data = taken.data
    if taken.kind == "text":
        return "text", data.encode()[:MAX_TEXT], ""
    if isinstance(data, bytes):
        data = decode(data)
    elif _is(data, "torch", "Tensor"):
        data = data.cpu()
        data = (data.float() if data.is_floating_point() else data).numpy()
    elif _is(data, "PIL.Image", "Image"):
        data = data.convert("RGBA")
    return "image", encode_png(to_pixels(data)), taken.caption


class _Call(NamedTuple):
    step: int
    name: str
    taken: list[Taken]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.taken)


class MediaQueue:
    """What waits to be written."""

    def __init__(self, run: RunDir, rank: int, world_size: int) -> None:
        self._rank = rank
        self._folder = MediaFolder(run, rank, world_size)
        self._lock = threading.RLock()
        self._waiting: deque[_Call] = deque()
        self._bytes = 0
        self._left_out: Counter[str] = Counter()
        self._alerted: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, step: int, name: str, taken: list[Taken]) -> None:
        call = _Call(step, name, taken)
        with self._lock:
            mine = [index for index, earlier in enumerate(self._waiting) if earlier.name == name]
            if len(mine) < MAX_FILES and (not self._waiting or self._bytes + call.bytes <= MAX_WAITING_BYTES):
                self._bytes += call.bytes
                self._waiting.append(call)
                return
            self._left_out[name] += len(taken)
            if len(mine) > 1:
                self._bytes += call.bytes - self._waiting[mine[-1]].bytes
                self._waiting[mine[-1]] = call

    def write(self, *, all: bool) -> Iterator[Event]:
        """Writes what waits, for a bounded time unless it is `all`, and says what is there now."""
        until = monotonic() + WRITE_S
        while self._waiting and (all or monotonic() < until):
            with self._lock:
                call = self._waiting.popleft()
                self._bytes -= call.bytes
            left_out = self._left_out.pop(call.name, 0)
            try:
                yield from self._folder.write(call.name, call.step, [_content(item) for item in call.taken], left_out)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                if why not in self._alerted and len(self._alerted) < MAX_ALERTS:
                    self._alerted.add(why)
                    text = f"rank {self._rank}: {call.name} cannot be kept: {why}"
                    yield Alert(kind="metric", rank=self._rank, step=call.step, text=text[:500])
