"""Mirrors a run's metrics to TensorBoard's event files while it trains: `python -m tuiapp.trainers.run.mirror RUN_DIR`.

A process of its own that only reads the journal: whatever it or its disk does, the run does not notice. It ends with
the run. How far it has come is in the run's directory, under a lock: a mirror that was killed, and that of a resumed
run, continue there. The second before a kill may then be in the files twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tuiapp.trainers.config.files import open_regular
from tuiapp.trainers.config.mirror import mirror_directory
from tuiapp.trainers.config.run_config import to_toml_values
from tuiapp.trainers.contract.events import RunEnded
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.disk_full_safe_stdio import make_stdio_disk_full_safe
from tuiapp.trainers.state.follow import follow
from tuiapp.trainers.state.status import read_config

POLL_S = 0.5
AWAY_S = 40.0
"""How long the run's directory may be away, if it was moved or its file server is down."""


class Progress(msgspec.Struct):
    directory: str = ""
    offset: int = 0
    """End of what is mirrored of the journal."""


def mirror(run: RunDir, directory: Path, config: Mapping[str, object]) -> None:
    """Writes what the journal has, and gets, until the run has ended. Raises OSError if it cannot be written."""
    # Half a second, which a run that is not mirrored need not wait for.
    from tuiapp.trainers.state.tensorboard import EventFiles

    with _held(run.mirror) as lock:
        progress = _read(lock)
        offset, over = progress.offset if progress.directory == str(directory) else 0, False
        with contextlib.closing(EventFiles(directory / run.run_id, run.run_id, config)) as files:
            for batch in follow(run, offset, _Presence(run), check_every_s=0.0):
                if batch.events:
                    for event in batch.events:
                        files.add(event)
                    files.flush()
                    _write(lock, Progress(str(directory), batch.offset))
                    over = isinstance(batch.events[-1], RunEnded)
                elif over or not batch.alive:
                    return
                else:
                    time.sleep(POLL_S)


class _Presence:
    """Tells whether a run is live, or its directory is away, which is known by its lock file."""

    trouble = ""

    def __init__(self, run: RunDir) -> None:
        self._run, self._seen_at = run, time.monotonic()

    def is_alive(self) -> bool:
        liveness, now = self._run.liveness(), time.monotonic()
        if liveness.is_live:
            self._seen_at = now
        return liveness is not Liveness.NOBODY and now - self._seen_at <= AWAY_S


@contextlib.contextmanager
def _held(path: Path) -> Iterator[int]:
    """Opens and locks a file; waits for the mirror of the attempt before, which may still be busy."""
    lock = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def _read(lock: int) -> Progress:
    try:
        return msgspec.json.decode(os.pread(lock, 1 << 16, 0), type=Progress)
    except (ValueError, RecursionError):
        return Progress()


def _write(lock: int, progress: Progress) -> None:
    text = msgspec.json.encode(progress)
    os.pwrite(lock, text, 0)
    os.ftruncate(lock, len(text))


def main() -> None:
    """Mirrors the run that the argument names; exits with 1 if that fails, whose reason is on stderr."""
    # Slurm sends it to every process of a job that it ends; this one ends with the run.
    signal.signal(signal.SIGTERM, lambda *_: None)
    make_stdio_disk_full_safe()
    run = RunDir(Path(sys.argv[1]))
    config = read_config(run)
    directory = mirror_directory(config.mirror)
    assert directory is not None, "the run is not mirrored"
    try:
        mirror(run, directory, to_toml_values(config))
    except OSError as error:
        print(f"mirror: cannot write {directory}: {error.strerror or error}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
