"""The user's directories, and small files in them: nothing half-written, unbounded, or that others may change.

Ranks read them, too: nothing here is from other packages.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

T = TypeVar("T")

LITTLE_BYTES = 64 << 10
"""A disk with less is full: what fails to be written gives some of it back."""
READS = 3
"""How often a file is read that others replace meanwhile."""


def absolute(text: str) -> Path:
    """Expands `~`, and resolves against the working directory."""
    return Path(os.path.expanduser(text)).absolute()


def printable(text: str) -> str:
    r"""Returns text that UTF-8 can hold: other bytes of a path, and surrogates, as escapes such as `\xff`."""
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file of mode 0600 so that a reader sees the old content or the new, never a part.

    Raises OSError if the directory cannot be written or the disk is full; nothing is left behind.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def replace_unsynced(path: Path, *parts: bytes) -> None:
    """Writes a file of mode 0600 as `write_atomically`, but a crash of the machine may leave any part of it.

    For what has one writer: a file that a kill left incomplete beside it is overwritten the next time.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        with open_own(new, "wb") as file:
            file.writelines(parts)
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def is_full(error: BaseException) -> bool:
    """Returns whether an error, or what caused it, is a disk without space, or a quota that is used up."""
    number = error.errno if isinstance(error, OSError) else None
    return number in (errno.ENOSPC, errno.EDQUOT) or (error.__cause__ is not None and is_full(error.__cause__))


def no_space(directory: Path) -> str:
    """Says that there is no space left for a directory; "" if there is, or that is not known."""
    with contextlib.suppress(OSError):
        system = os.statvfs(directory)
        if system.f_bavail * system.f_frsize < LITTLE_BYTES:
            return f"there is no space left in {directory}"
    return ""


def make_private(directory: Path) -> None:
    """Makes a directory and missing parents, all of mode 0700; an existing one is unchanged. Raises OSError."""
    # With parents=True the mode would apply to the last one only.
    if not os.path.exists(directory.parent):
        make_private(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)


def nearest_existing(directory: Path) -> Path:
    """Returns the directory, or else the nearest of its parents that exists."""
    return next(path for path in (directory, *directory.parents) if os.path.exists(path))


def why_not_trusted(path: Path) -> str:
    """Names the owner if somebody else may change or replace a file (or a link to one); "" if nobody may.

    Raises OSError if it cannot be examined.
    """
    target = path.resolve()
    for entry in dict.fromkeys((target, target.parent, path.parent)):
        status = entry.stat()
        if status.st_uid not in (os.geteuid(), 0):
            return f"{entry} belongs to another user"
        if status.st_mode & 0o022:
            mode = stat.S_IMODE(status.st_mode)
            return f"others may write {entry} (mode {mode:04o}). To change that: chmod go-w {shlex.quote(str(entry))}"
    return ""


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Opens a file that somebody else may have created; with `O_CREAT` makes it with mode 0600.

    Refuses a FIFO, which would wait for its other end, a device and a symbolic link. Raises OSError (errno ELOOP for a
    link).
    """
    special = OSError(errno.EINVAL, "not a regular file", str(path))
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # As a FIFO is called that nobody reads, and a socket.
        raise special if error.errno == errno.ENXIO else error from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise special
    return fd


@contextlib.contextmanager
def opened(path: Path | str) -> Iterator[int]:
    """Yields a descriptor of a file that `open_regular` opens to be read, and closes it; raises OSError."""
    fd = open_regular(path)
    try:
        yield fd
    finally:
        os.close(fd)


def open_own(path: Path, mode: Literal["ab", "wb", "xb"]) -> BinaryIO:
    """Opens a file of ours to be written, whatever the umask: a new one has mode 0600. Raises OSError."""
    return open(path, mode, opener=open_regular)


def take_from_others(path: Path) -> None:
    """Gives what a library has written, and all below it, the modes of our own files. Raises OSError."""
    for directory, _, files in os.walk(path):
        os.chmod(directory, 0o700)
        for name in files:
            os.chmod(os.path.join(directory, name), 0o600)


def read_end(path: Path, start: int, limit_bytes: int) -> str:
    """Returns a file's text from `start`, at most the last `limit_bytes`, invalid UTF-8 replaced; "" if unreadable."""
    with contextlib.suppress(OSError), opened(path) as fd:
        start = max(start, os.fstat(fd).st_size - limit_bytes)
        return os.pread(fd, limit_bytes, start).decode(errors="replace")
    return ""


def reread(read: Callable[[], T]) -> T:
    """Opens and reads a file by a function, again if it was replaced meanwhile: a file server then says ESTALE."""
    for _ in range(READS - 1):
        try:
            return read()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return read()


def read_limited(path: Path, limit_bytes: int) -> str:
    """Raises OSError for a link (errno ELOOP) or special file, ValueError over `limit_bytes` or if not UTF-8."""

    def read() -> bytes:
        with open(open_regular(path), "rb") as file:
            return file.read(limit_bytes + 1)

    data = reread(read)
    if len(data) > limit_bytes:
        raise ValueError(f"is longer than {limit_bytes // 1024} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def user_cache() -> Path:
    """Returns the directory for what can be made again, by the XDG Base Directory Specification; nothing is made.

    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    return _base("XDG_CACHE_HOME", "~/.cache")


def user_config() -> Path:
    """Returns the directory for what the user sets."""
    return _base("XDG_CONFIG_HOME", "~/.config")


def user_data() -> Path:
    """Returns the directory for what the user keeps."""
    return _base("XDG_DATA_HOME", "~/.local/share")


def user_state() -> Path:
    """Returns the directory for what is remembered between two starts."""
    return _base("XDG_STATE_HOME", "~/.local/state")


def _base(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable, "").strip() or os.path.expanduser(default)) / "tuiapp"


def bytes_below(directory: Path) -> int:
    """Returns the bytes of the files below a directory, from which others may vanish meanwhile."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
