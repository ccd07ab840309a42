"""Downloads the files of public data sets: checked, atomically, by one process at a time.

Only this module imports `pooch`, in a rank's process, and only when something must be downloaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuiapp.trainers.config.data_files import DATA_DIR, DataFile, DatasetError, cache_dir, data_dir, provided
from tuiapp.trainers.config.files import make_private, open_own

ROUNDS = 2

PAUSE_S = 2.0

TIMEOUT_S = (10.0, 30.0)
"""To connect, and without a byte."""

MEGABYTE = 1_000_000


def fetch(dataset: str, file: DataFile) -> Path:
    """Finds a file with the right checksum, perhaps without its .gz, or downloads it.

    Raises DatasetError if it cannot be downloaded or stored, or is a wrong one in `TUIAPP_DATA_DIR`.
    """
    if path := _find_provided(dataset, file):
        return path
    path = cache_dir(dataset) / file.name
    try:
        # Without the lock at first: the folder may have been filled by hand, and be read-only.
        if _has_checksum(path, file.sha256):
            return path
        make_private(path.parent)
        with alone(path.parent / ".lock", f"downloads {dataset}"):
            if not _has_checksum(path, file.sha256):
                _download(dataset, file, path)
    except OSError as error:
        raise DatasetError(
            f"{dataset}'s {file.name} cannot be stored as {path}: {error.strerror or error}. "
            f"Free space there, or put the data set's files into a folder and name that in {DATA_DIR}."
        ) from error
    return path


def _find_provided(dataset: str, file: DataFile) -> Path | None:
    if (folder := data_dir()) and not os.path.isdir(folder):
        raise DatasetError(f"{DATA_DIR} is {folder}, which is not a folder.")
    for path, sha256 in provided(dataset, file):
        try:
            if _has_checksum(path, sha256):
                return path
            exists = os.path.isfile(path)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror or error}.") from error
        if exists:
            raise DatasetError(
                f"{path} is damaged, or is not the {file.name} of {dataset}: its checksum is not {sha256}. "
                f"Only files of {dataset} belong in {data_dir()}/{dataset}."
            )
    return None


def _has_checksum(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


@contextmanager
def alone(lock: Path, what: str) -> Iterator[None]:
    """Waits for other processes that hold a lock; `what` says what they do, for the message meanwhile."""
    with open_own(lock, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that {what}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(dataset: str, file: DataFile, path: Path) -> None:
    if os.path.isfile(path):
        print(f"{path} is damaged; it is downloaded again", flush=True)
    # Holds what a killed process has left of a file.
    partial = path.parent / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    problems: dict[str, str] = {}
    try:
        for number in range(ROUNDS):
            if number:
                time.sleep(PAUSE_S)
            for url in file.urls:
                if problem := _try(url, file, partial):
                    print(f"cannot download {url}: {problem}", flush=True)
                    problems[url] = problem
                else:
                    (partial / file.name).replace(path)
                    return
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    tried = "\n".join(f"  {url}: {problem}" for url, problem in problems.items())
    raise DatasetError(
        f"{dataset}'s {file.name} cannot be downloaded:\n{tried}\n"
        f"Without a network, copy it there yourself: {path}, or into a folder that {DATA_DIR} names."
    )


def _try(url: str, file: DataFile, folder: Path) -> str:
    import pooch
    import requests  # what pooch downloads with

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=_Progress(file), timeout=TIMEOUT_S)
    try:
        pooch.retrieve(url, f"sha256:{file.sha256}", fname=file.name, path=folder, downloader=downloader)
    except requests.HTTPError as error:
        answer = error.response
        return f"the server answered {answer.status_code} {answer.reason}" if answer is not None else str(error)
    except requests.Timeout:
        return f"no answer within {TIMEOUT_S[1]:g} s"
    except requests.RequestException as error:
        return _innermost(error)
    except ValueError:
        return "the downloaded file has the wrong checksum"
    return ""


def _innermost(error: BaseException) -> str:
    while inner := getattr(error, "reason", None) or next((a for a in error.args if isinstance(a, Exception)), None):
        if not isinstance(inner, Exception):
            break
        error = inner
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.rpartition(">: ")[2].split())[:200]


class _Progress:
    """Reports progress about once a second; has the methods that pooch calls."""

    def __init__(self, file: DataFile) -> None:
        self.total = file.bytes
        """Set by pooch to the announced size, 0 if there is none."""
        self._file = file
        self._done = 0
        self._reported_at = time.monotonic()

    def update(self, size: int) -> None:
        self._done += size
        if time.monotonic() - self._reported_at >= 1:
            self._reported_at = time.monotonic()
            total = self.total or self._file.bytes
            done = f"{min(self._done, total) / MEGABYTE:.1f} of {total / MEGABYTE:.1f} MB"
            print(f"downloading {self._file.name}: {done}", flush=True)

    def reset(self) -> None:
        """Called at the end, before everything is counted once more."""
        self._done = 0

    def close(self) -> None:
        size = (self.total or self._file.bytes) / MEGABYTE
        print(f"downloaded {self._file.name}: {size:.1f} MB", flush=True)
