"""Pictures and texts that a run keeps: files of bounded number and size in its directory's `media/`.

A file is a PNG, a text, or a picture as another tool has encoded it; an event, `Media`, names it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from zlib import compress, crc32, decompressobj

from msgspec.structs import replace

from tuiapp.trainers.config.files import make_private, open_regular, replace_unsynced
from tuiapp.trainers.config.user_code import slug
from tuiapp.trainers.contract.events import Media
from tuiapp.trainers.contract.rundir import RunDir

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]
    """[H, W], or [H, W, 3] in RGB."""

Content: TypeAlias = tuple[Literal["image", "text"], bytes, str]
"""Kind, what the file holds, and a caption."""

MAX_SIDE = 512
"""Pixels of a picture's longer side: four times the cells of a wide terminal."""
MAX_FILES, MAX_BYTES = 100, 8 << 20
"""Most files and bytes of one name, over all ranks: as many as one pages through, ten of the largest size."""
MAX_NAMES = 64
"""Most names of one rank."""
MAX_AT_ONCE = 16
"""Pictures or texts of a name at one step."""
MAX_TEXT = 64 << 10
"""Bytes of a text."""
CHANNELS = (1, 3, 4)

_PNG = b"\x89PNG\r\n\x1a\n"
_HEAD = struct.Struct(">I4sIIBBBBB4sI4s")
"""The first chunk, whose fields are width, height, depth, colours and how it is packed; length and kind of the next."""


class MediaFolder:
    """The files of one rank. `world_size` ranks share the bounds."""

    def __init__(self, run: RunDir, rank: int = 0, world_size: int = 1) -> None:
        self._directory, self._rank = run.media, rank
        self._most = max(4, MAX_FILES // world_size)
        self._most_bytes = max(1 << 20, MAX_BYTES // world_size)
        self._names: dict[str, dict[int, dict[str, int]]] = {}
        """What its files begin with → step → file → bytes."""

    def write(self, name: str, step: int, files: Sequence[Content], left_out: int = 0) -> list[Media]:
        """Writes what a name has at a step; returns what to report.

        Every other step of the older half is removed, never the first or the last. Raises OSError; ValueError if there
        are too many names.
        """
        start = f"{slug(name)}-{crc32(name.encode()):08x}-r{self._rank}-"
        if start not in self._names:
            if len(self._names) >= MAX_NAMES:
                raise ValueError(f"more than {MAX_NAMES} names")
            make_private(self._directory)
            self._names[start] = self._found(start)
        steps, events, sizes = self._names[start], list[Media](), dict[str, int]()
        for index, (kind, data, caption) in enumerate(files):
            file = f"{start}{step:010}-{index:02}.{'txt' if kind == 'text' else 'png'}"
            replace_unsynced(self._directory / file, data)
            sizes[file] = len(data)
            events.append(Media(rank=self._rank, step=step, name=name, file=file, kind=kind, caption=caption))
        removed = [file for file in steps.get(step, ()) if file not in sizes]
        steps[step] = sizes
        while len(steps) > 2 and self._is_over(steps):
            ordered = sorted(steps)
            for old in ordered[1 : max(2, len(ordered) // 2) : 2]:
                removed += steps.pop(old)
        for file in removed:
            with suppress(FileNotFoundError):
                os.unlink(self._directory / file)
        events[:1] = [replace(event, removed=removed, left_out=left_out) for event in events[:1]]
        return events

    def _is_over(self, steps: dict[int, dict[str, int]]) -> bool:
        sizes = [size for files in steps.values() for size in files.values()]
        return len(sizes) > self._most or sum(sizes) > self._most_bytes

    def _found(self, start: str) -> dict[int, dict[str, int]]:
        """Returns what an earlier attempt has written."""
        steps: dict[int, dict[str, int]] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if named := re.fullmatch(rf"{re.escape(start)}(\d+)-\d+\.\w+", entry.name):
                    steps.setdefault(int(named[1]), {})[entry.name] = entry.stat().st_size
        return steps


def read_media(directory: Path, file: str) -> bytes:
    """Reads a file that an event names. Raises OSError."""
    # A journal may name anything: nothing but this directory's own files.
    with open(open_regular(directory / Path(file).name), "rb") as opened:
        return opened.read(MAX_BYTES)


def to_pixels(array: Any) -> Pixels:
    """Numbers [H, W], [H, W, C] or [C, H, W], where C is 1, 3 or 4, as a picture of at most `MAX_SIDE`.

    Fractions from 0 to 1 are scaled to 255, and what exceeds 0 to 255 from its least to its greatest value. Raises
    ValueError or TypeError if it is no picture.
    """
    import numpy as np

    values: Any = np.asarray(array)
    if values.ndim == 3 and values.shape[2] not in CHANNELS:
        values = np.moveaxis(values, 0, 2)
    is_bytes, values = values.dtype == np.uint8, values.astype(np.float32)
    if not is_bytes:
        values[~np.isfinite(values)] = 0
        low, high = values.min(), values.max()
        if low < 0 or high > 255:
            values = (values - low) / ((high - low) or 1) * 255
        elif high <= 1:
            values *= 255
    if values.ndim == 3 and values.shape[2] == 4:
        alpha = values[..., 3:] / 255
        values = values[..., :3] * alpha + 255 * (1 - alpha)
    height, width = values.shape[:2]
    if (factor := -(-max(height, width) // MAX_SIDE)) > 1:
        down, across = min(factor, height), min(factor, width)
        values = values[: height // down * down, : width // across * across]
        values = values.reshape(height // down, down, width // across, across, -1).mean((1, 3))
    values = values.round().astype(np.uint8)
    return values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values  # type: ignore[no-any-return]


def encode_png(pixels: Pixels) -> bytes:
    """Returns a PNG whose rows are differences from those above: https://www.w3.org/TR/png-3/#9Filters, type 2."""
    import numpy as np

    height, width = pixels.shape[:2]
    rows = np.diff(pixels.reshape(height, -1), axis=0, prepend=np.zeros((1, 1), np.uint8).repeat(pixels[0].size, 1))
    data = compress(np.insert(rows, 0, 2, axis=1).tobytes())
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    made = (struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc32(kind + body)) for kind, body in chunks)
    return _PNG + b"".join(made)


def decode(data: bytes) -> Pixels:
    """Returns a picture's pixels; raises ValueError, which says why not: others than `encode_png`'s need pillow."""
    import numpy as np

    with suppress(struct.error, ValueError):
        _, _, width, height, _, colours, _, _, _, _, size, kind = _HEAD.unpack_from(data, len(_PNG))
        wide = width * (3 if colours == 2 else 1)
        if data.startswith(_PNG) and kind == b"IDAT" and max(width, height) <= MAX_SIDE:
            begin = len(_PNG) + _HEAD.size
            rows = decompressobj().decompress(data[begin : begin + size], height * (wide + 1))
            filtered = np.frombuffer(rows, np.uint8).reshape(height, wide + 1)
            if (filtered[:, 0] == 2).all():
                pixels = filtered[:, 1:].cumsum(0, np.uint8)
                return pixels.reshape(height, width, 3) if colours == 2 else pixels
    try:
        from io import BytesIO

        from PIL import Image

        with Image.open(BytesIO(data)) as picture:
            return to_pixels(np.asarray(picture.convert("RGBA")))
    except ImportError:
        raise ValueError("it takes pillow, which is not installed: pip install 'tuiapp[images]'") from None
    except Exception:
        raise ValueError("no picture, or of a kind that pillow does not know") from None
