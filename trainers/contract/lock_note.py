"""The content of a run's lock file: how often the run was started, by whom, and why the journal cannot be written.

The note always has the same size and is overwritten in place: on most file systems that needs no room on a full disk,
where nothing else could tell a view why the journal does not grow.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from trainers.config.files import open_regular
from trainers.contract.rundir import RunDir

NOTE_BYTES = 2048
MAX_TROUBLE_CHARACTERS = 200
MAX_NAME_CHARACTERS = 64


class LockNote(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int = 0
    """How often the run was started or resumed; 0 if unknown."""
    supervisor: str = ""
    """Its `process_identity.identity`."""
    machine: str = ""
    """Where that is valid: `process_identity.machine`."""
    host: str = ""
    over: bool = False
    """Training has ended, and its end cannot be written yet."""
    trouble: str = ""
    """Why the journal does not grow, in words; "" if all is well."""


def write_note(fd: int, note: LockNote) -> None:
    """Writes the note into the lock file that a supervisor holds, if the disk takes it."""
    # Cut by characters, none of which takes more than six bytes of JSON.
    host, trouble = note.host[:MAX_NAME_CHARACTERS], note.trouble[:MAX_TROUBLE_CHARACTERS]
    text = msgspec.json.encode(msgspec.structs.replace(note, host=_ascii(host), trouble=_ascii(trouble)))
    with contextlib.suppress(OSError):
        os.pwrite(fd, text[:NOTE_BYTES].ljust(NOTE_BYTES), 0)


def read_note(run: RunDir) -> LockNote:
    """Reads a run's note; an empty one if it is missing or damaged."""
    try:
        fd = open_regular(run.lock)
    except OSError:
        return LockNote()
    try:
        return msgspec.json.decode(os.pread(fd, NOTE_BYTES, 0), type=LockNote)
    except (OSError, ValueError, RecursionError):
        return LockNote()
    finally:
        os.close(fd)


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()
