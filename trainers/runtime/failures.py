"""Why ranks ended, in words, and which of several failures came first."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import msgspec

from trainers.config.files import read_limited
from trainers.contract.events import RankFailed

MAX_ERROR_BYTES = 256 * 1024
LAST_LINES = 20

_CONSEQUENCE = re.compile(
    r"connection (closed|reset|refused)|broken pipe|\[.*gloo|gloo/transport|NCCL|DistBackendError|DistNetworkError"
    r"|DistStoreError|remote process (exited|has)|Rendezvous",
    re.IGNORECASE,
)


ERROR_FILE = "error.json"
"""In a rank's directory, once it has raised."""


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's error.json."""

    mono: float
    """When it was raised, on the host's monotonic clock."""
    error: str
    """The exception's own line; of a `DatasetError` its message alone."""
    traceback: str
    """"" of a `DatasetError`."""
    consequence: bool
    """It looks like what a collective raises when another rank is gone."""


def is_consequence(error: str) -> bool:
    """Whether an exception looks like what the collectives of the other ranks raise after one has failed."""
    return bool(_CONSEQUENCE.search(error))


def read_error(path: Path) -> RankError | None:
    """A rank's error.json; None when it wrote none."""
    try:
        return msgspec.json.decode(read_limited(path, MAX_ERROR_BYTES), type=RankError)
    except (OSError, ValueError, RecursionError):
        return None


def describe_exit(returncode: int) -> tuple[int | None, str]:
    """A subprocess's return code as exit code and signal name, one of which is None or ""."""
    if returncode >= 0:
        return returncode, ""
    try:
        return None, signal.Signals(-returncode).name
    except ValueError:
        return None, f"signal {-returncode}"


def first_cause(failures: list[tuple[RankFailed, bool]]) -> RankFailed:
    """Of several failures the one that the others follow from.

    Args:
        failures: Each with whether it looks like a consequence of another; at least one.
    """
    return min(failures, key=lambda item: (item[1], item[0].mono))[0]
