"""A file system that is slow, or fails, as one over a bad network is: FUSE, over a directory of this machine's.

    python -m tests.kit.slow_disk BACKING MOUNT TROUBLE

What others do in BACKING is seen at MOUNT as on another machine: locks of the one are unknown at the other. TROUBLE is
a file with a `Trouble` as JSON, read at each call.
"""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kit.waiting import wait_until


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of a call."""

    delay_s: float = 0.0
    long_s: float = 0.0
    """Of every 50th."""
    error: str = ""
    """Of all that reads, as ESTALE."""
    sync_s: float = 0.0
    """Of fsync."""


class SlowDisk:
    """One that is mounted."""

    def __init__(self, backing: Path, path: Path, control: Path) -> None:
        self.backing, self.path, self._control = backing, path, control
        self.be(Trouble())

    def be(self, trouble: Trouble) -> None:
        """From now on."""
        beside = self._control.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(trouble))
        beside.replace(self._control)


@contextmanager
def slow_disk(place: Path, *options: str) -> Iterator[SlowDisk]:
    """Mounts one at `place`/mount, over `place`/backing; `options` are FUSE's, as attr_timeout=3."""
    try:
        import mfusepy  # type: ignore[import-untyped]  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"needs mfusepy and libfuse: {error}")
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and /dev/fuse")
    disk = SlowDisk(place / "backing", place / "mount", place / "trouble")
    disk.backing.mkdir()
    disk.path.mkdir()
    command = [sys.executable, "-m", __name__, *map(str, (disk.backing, disk.path, place / "trouble")), *options]
    served = subprocess.Popen(command)
    try:
        wait_until(lambda: served.poll() is not None or disk.path.is_mount())
        assert served.poll() is None
        yield disk
    finally:
        disk.be(Trouble())
        subprocess.run(["umount", "-l", str(disk.path)], check=False, capture_output=True)
        served.kill()
        served.wait()


def _serve(backing: str, mount: str, control: str, *options: str) -> None:
    from mfusepy import FUSE, Operations

    calls = itertools.count(1)

    def suffer(*, reads: bool = False) -> None:
        trouble = msgspec.json.decode(Path(control).read_bytes(), type=Trouble)
        if trouble.delay_s:
            time.sleep(trouble.long_s if trouble.long_s and next(calls) % 50 == 0 else trouble.delay_s)
        if reads and trouble.error:
            raise OSError(getattr(errno, trouble.error), trouble.error)

    def at(path: str) -> str:
        return backing + path

    class Passed(Operations):  # type: ignore[misc]
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            # Of the mount itself all is known.
            suffer(reads=path != "/")
            found = os.lstat(at(path))
            times = {name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
            return {
                name: getattr(found, name) for name in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")
            } | times

        def readdir(self, path: str, fh: int) -> list[str]:
            suffer(reads=True)
            return [".", "..", *os.listdir(at(path))]

        def open(self, path: str, flags: int) -> int:
            suffer(reads=True)
            # The kernel has the offset: an append is a write at it.
            return os.open(at(path), flags & ~os.O_APPEND)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            suffer()
            return os.open(at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            suffer(reads=True)
            if not os.fstat(fh).st_nlink:
                # Replaced or removed: a server of NFS no longer has it.
                raise OSError(errno.ESTALE, "ESTALE")
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            suffer()
            return os.pwrite(fh, data, offset)

        def fsync(self, path: str, datasync: int, fh: int) -> None:
            time.sleep(msgspec.json.decode(Path(control).read_bytes(), type=Trouble).sync_s)

        def release(self, path: str, fh: int) -> None:
            os.close(fh)

        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            os.truncate(at(path), length)

        def unlink(self, path: str) -> None:
            os.unlink(at(path))

        def rmdir(self, path: str) -> None:
            os.rmdir(at(path))

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(at(path), mode)

        def rename(self, old: str, new: str) -> None:
            os.rename(at(old), at(new))

        def chmod(self, path: str, mode: int) -> None:
            os.chmod(at(path), mode)

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
            os.utime(at(path), ns=times) if times else os.utime(at(path))

    given = dict(option.partition("=")[::2] for option in options)
    FUSE(Passed(), mount, foreground=True, **given)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
