"""The content of a run's lock file: how often the run was started, by whom, and why the journal cannot be written.

The note always has the same size and is overwritten in place: on most file systems that needs no room on a full disk,
where nothing else could tell a view why the journal does not grow. Btrfs and similar file systems write nothing in
place. There a locked byte far beyond the file's end encodes the reason: that needs no disk at all, and ends with its
holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

import msgspec

from trainers.config.files import open_regular
from trainers.contract.rundir import NOTE_BYTES, RunDir

MAX_TROUBLE_CHARACTERS = 200
MAX_NAME_CHARACTERS = 64

SIGNAL_AT = 1 << 32
"""First such byte: further by the error's number, and by as many again once the run is over."""
MAX_ERRNO = 4095
OVER = MAX_ERRNO + 1
FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid (fcntl(2))."""


class LockNote(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int = 0
    """How often the run was started or resumed; 0 if unknown."""
    supervisor: str = ""
    """Its `process_identity.identity`."""
    machine: str = ""
    """Where that is valid: `process_identity.machine`; "" once the supervisor has let go."""
    host: str = ""
    over: bool = False
    """Training has ended, and its end cannot be written yet."""
    trouble: str = ""
    """Why the journal does not grow, in words; "" if all is well."""


def write_note(fd: int, note: LockNote) -> bool:
    """Writes the note into the lock file that a supervisor holds; returns whether that succeeded."""
    # Cut by characters, none of which takes more than six bytes of JSON.
    host, trouble = note.host[:MAX_NAME_CHARACTERS], note.trouble[:MAX_TROUBLE_CHARACTERS]
    text = msgspec.json.encode(msgspec.structs.replace(note, host=_ascii(host), trouble=_ascii(trouble)))
    with contextlib.suppress(OSError):
        return os.pwrite(fd, text[:NOTE_BYTES].ljust(NOTE_BYTES), 0) == NOTE_BYTES
    return False


def signal_trouble(fd: int, number: int | None, *, over: bool = False) -> None:
    """Signals an errno, None for all well, by a locked byte of the lock file when the note cannot be written."""
    spans = [(fcntl.F_UNLCK, SIGNAL_AT, 2 * OVER)]
    if number is not None and 0 < number <= MAX_ERRNO:
        spans.append((fcntl.F_WRLCK, SIGNAL_AT + number + OVER * over, 1))
    for kind, start, length in spans:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))


def read_note(run: RunDir) -> LockNote:
    """Reads a run's note; an empty one if it is missing or damaged."""
    try:
        fd = open_regular(run.lock)
    except OSError:
        return LockNote()
    try:
        note = msgspec.json.decode(os.pread(fd, NOTE_BYTES, 0), type=LockNote)
    except (OSError, ValueError, RecursionError):
        note = LockNote()
    else:
        if not note.trouble and (number := _signalled(fd)):
            over, number = divmod(number, OVER)
            then = "The run has ended and waits for disk space" if over else "Training continues"
            text = f"the journal cannot be written: {os.strerror(number)}. {then}"
            note = msgspec.structs.replace(note, trouble=text, over=bool(over))
    finally:
        os.close(fd)
    return note


def _signalled(fd: int) -> int:
    asked = struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, SIGNAL_AT, 2 * OVER, 0)
    with contextlib.suppress(OSError):
        kind, _, start, length, _ = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
        if kind != fcntl.F_UNLCK and start > SIGNAL_AT and length == 1:
            return int(start - SIGNAL_AT)
    return 0


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()
