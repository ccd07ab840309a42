"""Finds out why ranks ended: which of several failures came first, and what a rank, or the kernel, says of it.

A built-in trainer's rank reports its exception; a script's is read from the end of its logs. SIGKILL looks the same
whoever sent it, but the kernel counts its OOM kills: per control group (`oom_kill` in memory.events, or
memory.oom_control in cgroups v1), and for the whole machine in /proc/vmstat.
"""

from __future__ import annotations

import json
import re
import signal
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tuiapp.trainers.config.files import read_end
from tuiapp.trainers.config.machine import memory_groups
from tuiapp.trainers.config.script_syntax import ESCAPES
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.state.messages import error_line

ELASTIC_ERROR_FILE = "torchelastic_error.json"
"""File written by a script whose main function has torch's `@record`."""

MAX_TRACEBACK_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024

CLEANUP_S, CLEANUP_LINES = 900.0, 10
"""How long a script takes at most to end after its exception, and what it says meanwhile; NCCL waits ten minutes."""

MOST_MEMBERS = 3
"""Members of an exception group that are named; the rest is counted."""

_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""PyTorch puts it before each line of an exception's traceback once the process group exists."""

TRACEBACK = "Traceback (most recent call last)"
_HEADER = re.escape(TRACEBACK)
_PLAIN = re.compile(rf"^(?P<lead>(?!\s*[|│┃]).*?)(?P<group>\+ Exception Group )?{_HEADER}:$")
"""The members of a group have headers of their own, each behind a bar."""
_BOX = re.compile(rf"[╭┌┏+][─━-]* ?{_HEADER} ?[─━-]*[╮┐┓+]$")
"""rich's frame around the calls; the exception stands below it."""
_FRAME = re.compile(r"\s|> File |$")
"""A line of the calls is indented; loguru marks the one that caught the exception."""
_LAST = re.compile(r"[^\W\d][\w.<>]*(?::|$)")
_CHAIN = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)

_IGNORED = re.compile(r"Exception ignored (in|while)\b")
"""Before the traceback of one that ends nothing, as of a `__del__` at the interpreter's end."""

_MEMBER = re.compile(r"^ *(?P<deeper>\+-)?\+-+ (\d+|\.\.\.) -+$")
_MEMBERS_END = re.compile(r"^ *\+-+$")
_BAR = re.compile(r"^ *\| ?")
_BORDERS = re.compile(r"^(?:[│┃|] )*|(?: *[│┃|])*$")
_BOX_BEGINS, _BOX_ENDS = re.compile(r"^[╭┌┏+][─━-].*[╮┐┓+]$"), re.compile(r"^[╰└┗+][─━-]+[╯┘┛+]$")
_MEMBER_BOX = "Sub-exception #"

_FAULT = "Fatal Python error: "
"""Line from which on faulthandler writes where each thread was when a signal came."""
_TERMINATED = re.compile(r"terminate called after throwing an instance of '([^']+)'\s+what\(\): +(.+)")

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

KEEP_S = 5.0
"""How long before a rank's end the kill may have happened: a large process takes a while to exit."""


class RankError(msgspec.Struct, frozen=True, kw_only=True):
    mono: float
    error: str
    """The exception's line; of a `DatasetError` or `UserCodeError` only the message."""
    traceback: str
    """"" for those; otherwise from the first frame in the user's own files on, if there is one."""
    consequence: bool
    """Whether it looks like what a collective raises when another rank is gone."""


def rank_error(error: BaseException, text: str) -> RankError:
    """Describes an exception; `text` is the traceback, "" for an error whose message says it all."""
    last = "".join(traceback.format_exception_only(error)).strip() if text else str(error)
    if isinstance(error, BaseExceptionGroup) and (printed := find_traceback(text)):
        last = printed.error
    return RankError(
        mono=time.monotonic(),
        error=_fit(last, MAX_ERROR_CHARACTERS),
        traceback=_fit(text, MAX_TRACEBACK_CHARACTERS),
        consequence=bool(text) and is_consequence(last),
    )


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
    """Returns the rank that ended without failing while the others waited for it, if nothing else is the cause.

    `left` is when each such rank ended, on the monotonic clock.
    """
    if not failures or not left or not all(consequence for _, consequence in failures):
        return None
    cause = first_cause(failures)
    rank = min(left, key=lambda rank: left[rank])
    if not failed_in_collective(cause):
        return None
    why = f"while rank {cause.rank} waited for it in a collective: {error_line(cause.error)}"
    return RankFailed(rank=rank, exit_code=0, hint=why, step=None, mono=left[rank])


def is_consequence(error: str) -> bool:
    """Tells whether an exception looks like what the other ranks' collectives raise after one has failed."""
    return bool(_CONSEQUENCE.search(error))


def failed_in_collective(failure: RankFailed) -> bool:
    """Tells whether a rank failed in what all ranks do together."""
    return bool(_COLLECTIVE.search(f"{failure.error}\n{failure.traceback}"))


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
        """Tells whether the kernel has killed something within `KEEP_S`; None if unknown."""
        before, now = self._counts[0][1], self._read()
        if before is None or now is None or before.file != now.file:
            return None
        return now.kills > before.kills

    def _read(self) -> _Count | None:
        files = self._files
        if files is None:
            # This process's control group, looked up each time because it may be moved; else the machine.
            names = ("memory.events", "memory.oom_control")
            files = [*(group / name for group in memory_groups() for name in names), Path("/proc/vmstat")]
        return next((_Count(file, count) for file in files if (count := _read_count(file)) is not None), None)


class _Count(NamedTuple):
    file: Path
    kills: int


def oom_hint(oom_killed: bool | None) -> str:
    """Returns text to add to "was killed by SIGKILL"; "" if nothing is known."""
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


def _fit(text: str, limit: int) -> str:
    """Cuts out the middle of long text."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-limit // 2 :]}"


class ScriptError(msgspec.Struct, frozen=True):
    """An exception that ended a script."""

    error: str
    """The exception's line; of an exception group, with those of its first members."""
    traceback: str
    lines_after: int = 0
    """Lines that the script has written after its traceback."""


def read_failure(directory: Path, errors_from: int, output_from: int) -> ScriptError | None:
    """Finds the exception that ended a script: in torch's error file, at the end of its stderr, or of its stdout.

    The logs are read from these offsets on.
    """
    raised = read_elastic_error(directory / ELASTIC_ERROR_FILE) or find_traceback(
        read_end(directory / "stderr.log", errors_from, MAX_TRACEBACK_BYTES)
    )
    if raised is not None:
        return raised
    printed = find_traceback(read_end(directory / "stdout.log", output_from, MAX_TRACEBACK_BYTES))
    # A script that prints on has caught its exception and gone on.
    return printed if printed and printed.lines_after <= CLEANUP_LINES else None


def read_elastic_error(path: Path) -> ScriptError | None:
    """Reads the file that torch's `@record` writes; None if there is none, or it has another form."""
    try:
        # Unlike msgspec's, this decoder takes text that is no UTF-8, as an exception's may be.
        content: Any = json.loads(read_end(path, 0, MAX_ERROR_BYTES))
        message = content["message"]
        said, trace = message["message"], message["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return ScriptError(error=str(said), traceback=str(trace).strip()) if said else None


def find_traceback(text: str) -> ScriptError | None:
    """Returns the last traceback of a text, with those that it followed from; None if there is none."""
    written = text.rpartition(_FAULT)[0] or text
    lines = [line.rstrip() for line in _PREFIX.sub("", ESCAPES.sub("", written)).splitlines()]
    headers = [
        number
        for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False))
        if (_PLAIN.match(line) or _BOX.search(line)) and not _IGNORED.search(before)
    ]
    while headers:
        start = headers.pop()
        error, end = _read_box(lines, start) if _BOX.search(lines[start]) else _read_plain(lines, start)
        if error:
            while headers and any(line.strip() in _CHAIN for line in lines[max(0, start - 3) : start]):
                start = headers.pop()
            return ScriptError(error, "\n".join(lines[start : end + 1]), len(lines) - end - 1)
    return _find_syntax_error(lines)


def find_terminate(text: str) -> ScriptError | None:
    """Returns the C++ exception that has aborted a process: as a watchdog's, whose thread has no Python."""
    thrown = _TERMINATED.findall(_PREFIX.sub("", text))
    return ScriptError(": ".join(thrown[-1]), "") if thrown else None


def crashed_at_exit(text: str) -> bool | None:
    """Tells whether a signal came after the script's own code had ended; None if faulthandler does not say."""
    _, fault, stacks = text.rpartition(_FAULT)
    return " in <module>" not in stacks if fault else None


def _read_plain(lines: Sequence[str], start: int) -> tuple[str, int]:
    """Returns the exception of the traceback that starts at a line, and its last line; "" if it has no end."""
    header = _PLAIN.match(lines[start])
    assert header is not None
    lead, following = header["lead"], lines[start + 1 :]
    # A launcher may put its own words before each line, a log before the first.
    column = len(lead) if not lead.strip() or (following and following[0].startswith(lead)) else 0
    if header["group"]:
        return _read_group([line[column:] for line in following], start)
    for number, line in enumerate(following, start + 1):
        if lead.strip() and column and not line.startswith(lead.rstrip()):
            continue
        if not _FRAME.match(line[column:]):
            said = "\n".join(line[column:] for line in lines[number:])
            return (error_line(said), number) if _LAST.match(line[column:]) else ("", number)
    return "", start


def _read_group(lines: Sequence[str], start: int) -> tuple[str, int]:
    """Reads an exception group, whose lines below its header these are."""
    members: list[list[str]] = []
    groups: set[int] = set()
    title: list[str] = []
    into, end = title, start
    for number, line in enumerate(lines, start + 1):
        if separator := _MEMBER.match(line):
            if separator["deeper"] and members:
                groups.add(len(members) - 1)
            into = []
            members.append(into)
        elif _MEMBERS_END.match(line):
            into, end = [], number
        elif _BAR.match(line):
            into.append(_BAR.sub("", line, count=1))
    named = [_member_line(member) for index, member in enumerate(members) if index not in groups]
    return _group_line(_after_calls(title), named), end


def _read_box(lines: Sequence[str], start: int) -> tuple[str, int]:
    """Reads a traceback in rich's frame, in which a member of a group has a frame of its own."""
    match = _BOX.search(lines[start])
    assert match is not None
    column, width = match.start(), len(match.group())
    said: list[str] = []
    """Lines below the frames of the calls."""
    members: list[list[str]] = []
    groups: set[int] = set()
    open_boxes: list[int | None] = []
    """The member of each; None of a frame around calls or variables."""
    end = start
    for number, line in enumerate(lines[start:], start):
        inner = line[column:] if not open_boxes else _BORDERS.sub("", line[column:])
        if _BOX_ENDS.match(inner) and open_boxes:
            open_boxes.pop()
            end = number
        elif _BOX_BEGINS.match(inner):
            if not open_boxes and number > start and _MEMBER_BOX not in inner:
                break
            is_member = _MEMBER_BOX in inner
            if is_member:
                groups |= {index for index in open_boxes if index is not None}
                members.append([])
            open_boxes.append(len(members) - 1 if is_member else None)
        elif not open_boxes:
            said.append(inner)
        elif (member := open_boxes[-1]) is not None:
            members[member].append(inner)
    named = [_member_line(member) for index, member in enumerate(members) if index not in groups]
    line = _unwrap(said, width)
    if not _LAST.match(line):
        return "", start
    return _group_line(line, named), end if members else end + 1


def _unwrap(lines: Sequence[str], width: int) -> str:
    """Joins the exception's line, which rich breaks where the next word exceeds its width."""
    text = ""
    for number, line in enumerate(lines):
        text += line
        following = lines[number + 1].split() if number + 1 < len(lines) else []
        if not following or len(line) + 1 + len(following[0]) <= width:
            return error_line("\n".join([text, *lines[number + 1 :]]))
        # A word that is longer than a line is cut.
        text += "" if len(line) == width and " " not in line else " "
    return text


def _after_calls(lines: Sequence[str]) -> str:
    """Returns the exception's line, which follows its calls."""
    after = [number for number, line in enumerate(lines) if not _FRAME.match(line)]
    return error_line("\n".join(lines[after[0] :])) if after else ""


def _member_line(lines: Sequence[str]) -> str:
    if said := find_traceback("\n".join(lines)):
        return said.error
    chained = [number for number, line in enumerate(lines) if line.strip() in _CHAIN]
    return error_line("\n".join(lines[chained[-1] + 1 if chained else 0 :]))


def _group_line(title: str, members: Sequence[str]) -> str:
    omitted = f"; and {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else ""
    return f"{title}: {'; '.join(members[:MOST_MEMBERS])}{omitted}" if title and members else title


def _find_syntax_error(lines: Sequence[str]) -> ScriptError | None:
    """Finds a SyntaxError of the script itself, which has no header."""
    ends = [number for number, line in enumerate(lines) if line.startswith(("SyntaxError", "IndentationError"))]
    if not ends:
        return None
    start = max((number for number, line in enumerate(lines[: ends[-1]]) if line.startswith('  File "')), default=None)
    if start is None:
        return None
    return ScriptError(lines[ends[-1]], "\n".join(lines[start : ends[-1] + 1]), len(lines) - ends[-1] - 1)
