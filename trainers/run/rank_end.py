"""Why ranks ended, in words, which of several failures came first, and whether the kernel had a hand in it.

SIGKILL looks the same whoever sent it, but the kernel counts its OOM kills: per control group (`oom_kill` in
memory.events, or memory.oom_control in cgroups v1), and for the whole machine in /proc/vmstat.
"""

from __future__ import annotations

import re
import signal
import time
import traceback
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuiapp.trainers.config.machine import memory_groups
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.run.tracebacks import find_traceback
from tuiapp.trainers.state.messages import error_line

MAX_ERROR_CHARACTERS, MAX_TRACEBACK_CHARACTERS = 8_000, 24_000
LAST_LINES = 20

_COLLECTIVE = re.compile(
    r"\[.*gloo|gloo/transport|NCCL|Dist(Backend|Network|Store)Error|distributed_c10d\.py|Rendezvous|monitoredBarrier"
    r"|coordination ?service|barrier timed out",
    re.IGNORECASE,
)
_CONSEQUENCE = re.compile(
    rf"connection (closed|reset|refused)|broken pipe|remote process (exited|has)|{_COLLECTIVE.pattern}", re.IGNORECASE
)


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    mono: float
    error: str
    """The exception's line; of a `DatasetError` or `UserCodeError` only the message."""
    traceback: str
    """"" for those; otherwise from the first frame in the user's own files on, if there is one."""
    consequence: bool
    """Looks like what a collective raises when another rank is gone."""


def is_consequence(error: str) -> bool:
    """Whether an exception looks like what the other ranks' collectives raise after one has failed."""
    return bool(_CONSEQUENCE.search(error))


def waited(failure: RankFailed) -> bool:
    """Whether it failed in what all ranks do together."""
    return bool(_COLLECTIVE.search(f"{failure.error}\n{failure.traceback}"))


def rank_error(error: BaseException, text: str) -> RankError:
    """`text` is the traceback, "" for an error whose message says it all."""
    last = "".join(traceback.format_exception_only(error)).strip() if text else str(error)
    if isinstance(error, BaseExceptionGroup) and (printed := find_traceback(text)):
        last = printed.error
    return RankError(
        mono=time.monotonic(),
        error=_fit(last, MAX_ERROR_CHARACTERS),
        traceback=_fit(text, MAX_TRACEBACK_CHARACTERS),
        consequence=bool(text) and is_consequence(last),
    )


def _fit(text: str, limit: int) -> str:
    """Cuts out the middle of long text."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-limit // 2 :]}"


def describe_exit(returncode: int) -> tuple[int | None, str]:
    """Splits a subprocess's return code into exit code and signal name, one of which is None or ""."""
    if returncode >= 0:
        return returncode, ""
    try:
        return None, signal.Signals(-returncode).name
    except ValueError:
        return None, f"signal {-returncode}"


def first_cause(failures: list[tuple[RankFailed, bool]]) -> RankFailed:
    """Picks the cause of the other failures; each comes with whether it looks like a consequence."""
    return min(failures, key=lambda item: (item[1], item[0].mono))[0]


def left_early(failures: list[tuple[RankFailed, bool]], left: Mapping[int, float]) -> RankFailed | None:
    """The rank that ended without failing while the others waited for it, if nothing else is the cause.

    `left` is when each such rank ended, on the monotonic clock.
    """
    if not failures or not left or not all(consequence for _, consequence in failures):
        return None
    cause = first_cause(failures)
    rank = min(left, key=lambda rank: left[rank])
    if not waited(cause):
        return None
    why = f"while rank {cause.rank} waited for it in a collective: {error_line(cause.error)}"
    return RankFailed(rank=rank, exit_code=0, hint=why, step=None, mono=left[rank])


KEEP_S = 5.0
"""How long before a rank's end the kill may have happened: a large process takes a while to exit."""


class _Count(NamedTuple):
    file: Path
    kills: int


class OomWatch:
    """Compares the kernel's counts with those of a moment ago; `now` is monotonic."""

    def __init__(self, now: float, files: list[Path] | None = None) -> None:
        self._files = files
        self._counts: deque[tuple[float, _Count | None]] = deque([(now, self._read())])

    def poll(self, now: float) -> None:
        if now - self._counts[-1][0] >= KEEP_S:
            self._counts.append((now, self._read()))
            while len(self._counts) > 2:
                self._counts.popleft()

    def oom_killed(self) -> bool | None:
        """Whether it has killed something within `KEEP_S`; None if unknown."""
        before, now = self._counts[0][1], self._read()
        if before is None or now is None or before.file != now.file:
            return None
        return now.kills > before.kills

    def _read(self) -> _Count | None:
        # Looked up each time: a process may be moved to another group.
        files = _counters() if self._files is None else self._files
        return next((_Count(file, count) for file in files if (count := _read_count(file)) is not None), None)


def hint(oom_killed: bool | None) -> str:
    """Text to add to "was killed by SIGKILL"; "" if nothing is known."""
    if oom_killed is None:
        return ""
    return "by the kernel's out-of-memory killer" if oom_killed else "not by the kernel's out-of-memory killer"


def _read_count(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            lines = file.read(65536).splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(b" ")
        if name == b"oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def _counters() -> list[Path]:
    """The count's possible files: of this process's control group, else the machine's."""
    names = ("memory.events", "memory.oom_control")
    return [*(group / name for group in memory_groups() for name in names), Path("/proc/vmstat")]
