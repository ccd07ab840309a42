"""Images decoded once, in parallel, into a memory map in the user's cache directory, which later runs read.

A cache is a directory that a key names: `images.npy`, uint8 [N, size, size, 3], and `labels.npy`, int64 [N]. It is
written under another name and renamed when all of it is on the disk. Each may be deleted.
"""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuiapp.trainers.config.data_files import DatasetError, cache_dir
from tuiapp.trainers.config.files import make_private, open_own, open_regular
from tuiapp.trainers.sources.arrays import Labels
from tuiapp.trainers.sources.downloads import alone

CHANNELS = 3
AT_ONCE = 2048
"""Pictures that wait for a thread: a bound on memory."""


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    """For messages: a path, or a place in a file."""
    content: Path | bytes


def open_cached(key: str) -> tuple[npt.NDArray[np.uint8], Labels] | None:
    """Returns the images, as a memory map, and labels of a cache; None if there is none."""
    directory = cache_dir("images") / key
    try:
        return np.load(directory / "images.npy", mmap_mode="r"), np.load(directory / "labels.npy")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        raise DatasetError(f"{directory} cannot be read ({error}); delete it; it will be made again.") from error


def decode_all(
    key: str, what: str, labels: Labels, size: int, pictures: Iterable[Picture]
) -> tuple[npt.NDArray[np.uint8], Labels]:
    """Decodes pictures into a cache, unless another process has; prints progress about once a second.

    `what` names them in messages. Raises DatasetError if a picture is damaged, or the cache cannot be written.
    """
    directory = cache_dir("images") / key
    partial = directory.parent / ".partial"
    try:
        make_private(directory.parent)
        with alone(directory.parent / ".lock", f"decodes images into {directory.parent}"):
            if (made := open_cached(key)) is not None:
                return made
            # What a killed process has left.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700)
            try:
                _write_images(partial / "images.npy", what, len(labels), size, pictures)
                with open_own(partial / "labels.npy", "xb") as file:
                    np.save(file, labels)
                    os.fsync(file.fileno())
                partial.rename(directory)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        wanted = len(labels) * size * size * CHANNELS / 1e9
        raise DatasetError(
            f"the decoded images of {what}, {wanted:,.1f} GB, cannot be kept in {directory.parent}: "
            f"{error.strerror or error}. Free space there, or name another cache directory in XDG_CACHE_HOME."
        ) from error
    made = open_cached(key)
    assert made is not None
    return made


def decode(picture: Picture, size: int) -> npt.NDArray[np.uint8]:
    """Decodes a picture, upright, its middle square scaled to `size`: [size, size, 3]; raises DatasetError."""
    # Who only reads the cache does without it.
    from PIL import Image, ImageOps

    content = io.BytesIO(picture.content) if isinstance(picture.content, bytes) else picture.content
    try:
        with Image.open(content) as image:
            # A JPEG is decoded at an eighth, a quarter or half its size where that is enough.
            image.draft("RGB", (size, size))
            upright = ImageOps.exif_transpose(image).convert("RGB")
            return np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BILINEAR))
    # Pillow raises what its parsers come upon: SyntaxError, struct.error, zlib.error …
    except Exception as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise DatasetError(f"{picture.name} cannot be decoded: {why}. Replace or remove it.") from error


def _write_images(path: Path, what: str, count: int, size: int, pictures: Iterable[Picture]) -> None:
    header = io.BytesIO()
    shape = (count, size, size, CHANNELS)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    begin, image_bytes = header.tell(), size * size * CHANNELS
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        # A full disk is found out at once, not after an hour.
        os.posix_fallocate(fd, 0, begin + count * image_bytes)
        os.pwrite(fd, header.getvalue(), 0)

        def write(numbered: tuple[int, Picture]) -> None:
            number, picture = numbered
            _write_fully(fd, decode(picture, size).tobytes(), begin + number * image_bytes)

        done, printed_at = 0, time.monotonic()
        for done, _ in enumerate(_in_parallel(write, pictures), start=1):
            if time.monotonic() - printed_at >= 1:
                printed_at = time.monotonic()
                print(f"decoding {what}: {done:,} of {count:,} images", flush=True)
        if done != count:
            raise DatasetError(f"{what} was changed while the run was starting; start it again.")
        os.fsync(fd)
    finally:
        os.close(fd)
    print(f"decoded {what}: {count:,} images", flush=True)


def _in_parallel(write: Any, pictures: Iterable[Picture]) -> Iterator[None]:
    numbered = enumerate(pictures)
    # Pillow lets other threads run while it decodes.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "decode") as pool:
        try:
            while some := list(islice(numbered, AT_ONCE)):
                yield from pool.map(write, some)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write_fully(fd: int, data: bytes, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
