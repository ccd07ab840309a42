"""Finds the exception that ended a process in what it wrote: as Python, rich and loguru print it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuiapp.trainers.config.files import read_end
from tuiapp.trainers.config.script_syntax import ESCAPES
from tuiapp.trainers.state.messages import error_line

ELASTIC_ERROR_FILE = "torchelastic_error.json"
"""Written by a script whose main function has torch's `@record`."""

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
"""From here on faulthandler writes where each thread was when a signal came."""
_TERMINATED = re.compile(r"terminate called after throwing an instance of '([^']+)'\s+what\(\): +(.+)")


class ScriptError(msgspec.Struct, frozen=True):
    """An exception that ended a script."""

    error: str
    """The exception's line; of an exception group, with those of its first members."""
    traceback: str
    lines_after: int = 0
    """Written after it."""


def read_failure(directory: Path, errors_from: int, output_from: int) -> ScriptError | None:
    """Finds the exception that ended a script: in torch's error file, at the end of its stderr, or of its stdout.

    The logs are read from these offsets on.
    """
    return (
        read_elastic_error(directory / ELASTIC_ERROR_FILE)
        or find_traceback(read_end(directory / "stderr.log", errors_from, MAX_TRACEBACK_BYTES))
        or _last_words(find_traceback(read_end(directory / "stdout.log", output_from, MAX_TRACEBACK_BYTES)))
    )


def _last_words(printed: ScriptError | None) -> ScriptError | None:
    """A script that prints on has caught its exception and gone on."""
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
    """The last traceback of a text, with those that it followed from; None if there is none."""
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
    """The C++ exception that has aborted a process: as a watchdog's, whose thread has no Python."""
    thrown = _TERMINATED.findall(_PREFIX.sub("", text))
    return ScriptError(": ".join(thrown[-1]), "") if thrown else None


def crashed_at_exit(text: str) -> bool | None:
    """Whether a signal came after the script's own code had ended; None if faulthandler does not say."""
    _, fault, stacks = text.rpartition(_FAULT)
    return " in <module>" not in stacks if fault else None


def _read_plain(lines: Sequence[str], start: int) -> tuple[str, int]:
    """The exception of the traceback that starts at a line, and the last line of it; "" if it has no end."""
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
    """Below the frames of the calls."""
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
    """The exception's line, which rich breaks where the next word exceeds its width."""
    whole = ""
    for number, line in enumerate(lines):
        whole += line
        following = lines[number + 1].split() if number + 1 < len(lines) else []
        if not following or len(line) + 1 + len(following[0]) <= width:
            return error_line("\n".join([whole, *lines[number + 1 :]]))
        # A word that is longer than a line is cut.
        whole += "" if len(line) == width and " " not in line else " "
    return whole


def _after_calls(lines: Sequence[str]) -> str:
    """The exception's line behind its calls."""
    rest = [number for number, line in enumerate(lines) if not _FRAME.match(line)]
    return error_line("\n".join(lines[rest[0] :])) if rest else ""


def _member_line(lines: Sequence[str]) -> str:
    if said := find_traceback("\n".join(lines)):
        return said.error
    chained = [number for number, line in enumerate(lines) if line.strip() in _CHAIN]
    return error_line("\n".join(lines[chained[-1] + 1 if chained else 0 :]))


def _group_line(title: str, members: Sequence[str]) -> str:
    more = f"; and {len(members) - MOST_MEMBERS} more" if len(members) > MOST_MEMBERS else ""
    return f"{title}: {'; '.join(members[:MOST_MEMBERS])}{more}" if title and members else title


def _find_syntax_error(lines: Sequence[str]) -> ScriptError | None:
    """A SyntaxError of the script itself has no header."""
    ends = [number for number, line in enumerate(lines) if line.startswith(("SyntaxError", "IndentationError"))]
    if not ends:
        return None
    start = max((number for number, line in enumerate(lines[: ends[-1]]) if line.startswith('  File "')), default=None)
    if start is None:
        return None
    return ScriptError(lines[ends[-1]], "\n".join(lines[start : ends[-1] + 1]), len(lines) - ends[-1] - 1)
