"""Small files of a run's directory beside its journal, which any process may write.

`about.json` has what the user calls the run, `commands/` the requests to it, `waits.json` its place in the queue, and
the notice what to do when it has ended.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.files import read_limited, replace_unsynced, write_atomically
from tuiapp.trainers.config.options import shown
from tuiapp.trainers.config.settings import MAX_FILE_BYTES as MAX_ORDER_BYTES
from tuiapp.trainers.config.settings import Settings
from tuiapp.trainers.contract.lock import alone
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir, find_run_dirs

MAX_NAME_CHARACTERS = 100
MAX_NOTE_CHARACTERS = 10_000
MAX_TAG_CHARACTERS = 32
MAX_TAGS = 20
MAX_FILE_BYTES = 128 * 1024

TAKEN = ("latest", ".", "..")
"""What RUN means on the command line, whatever runs are called."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TAG = re.compile(r"[^\s,]+")


class AboutError(ValueError):
    """A name, group, tag or note is not allowed, or cannot be written; the message gives the reason."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Checked on creation; raises AboutError."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    group: str = ""
    """What it belongs to with other runs, as a sweep; "" for nothing."""
    accepted: tuple[str, ...] = ()
    """Kinds of blemishes that the user knows of, and that are no longer shown."""
    values: dict[str, bool | int | float | str] = {}
    """Key → what its study has given it: the combination that it is the run of."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.group:
            _check_word(self.group, "group")
        if len(self.tags) > MAX_TAGS:
            raise AboutError(f"{len(self.tags)} tags are too many: a run has at most {MAX_TAGS}.")
        for tag in self.tags:
            _check_word(tag, "tag")
        if len(self.note) > MAX_NOTE_CHARACTERS:
            length = f"{len(self.note):,} characters"
            raise AboutError(f"The note has {length}; at most {MAX_NOTE_CHARACTERS:,} are allowed.")
        _check_text("The note", self.note.replace("\n", "").replace("\t", ""))


@dataclass(frozen=True, slots=True)
class Change:
    """What to change of an `About`; None, or no tags, leaves it as it is."""

    name: str | None = None
    note: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    """To add."""
    untags: tuple[str, ...] = ()
    """To remove."""
    accepted: tuple[str, ...] = ()
    """Kinds of blemishes to accept."""

    def of(self, about: About) -> About:
        """Returns `about` changed; raises AboutError."""
        return About(
            name=about.name if self.name is None else self.name.strip(),
            tags=tuple(dict.fromkeys(tag for tag in (*about.tags, *self.tags) if tag not in self.untags)),
            note=about.note if self.note is None else _plain_lines(self.note),
            group=about.group if self.group is None else self.group.strip(),
            accepted=tuple(dict.fromkeys((*about.accepted, *self.accepted))),
            values=about.values,
        )


def read_about(run: RunDir) -> tuple[About, str]:
    """Reads what a run is called; an empty one, and why in words, if its file is damaged."""
    try:
        return msgspec.json.decode(read_limited(run.about, MAX_FILE_BYTES), type=About), ""
    except FileNotFoundError:
        return About(), ""
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        why = str(error)
    return About(), f"{run.about.name} is ignored: {why.rstrip('.')}"


def change_about(run: RunDir, change: Change) -> About:
    """Changes what a run is called, atomically, whoever else does so; returns the result. Raises AboutError."""
    try:
        with alone(run.path):
            before, _ = read_about(run)
            about = change.of(before)
            if about != before:
                write_about(run, about)
    except OSError as error:
        raise AboutError(f"Cannot write {run.about}: {error.strerror or error}.") from error
    return about


def write_about(run: RunDir, about: About, *, durable: bool = True) -> None:
    """Writes what a run is called, whatever it was called before; raises OSError."""
    write = write_atomically if durable else replace_unsynced
    write(run.about, msgspec.json.format(msgspec.json.encode(about)) + b"\n")


def split_tags(text: str) -> tuple[str, ...]:
    """Returns the tags of a text in which commas or spaces separate them."""
    return tuple(dict.fromkeys(_TAG.findall(text)))


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME_CHARACTERS:
        raise AboutError(
            f"The name {shown(name)} has {len(name):,} characters; at most {MAX_NAME_CHARACTERS} are allowed."
        )
    _check_text("The name", name)
    if name in TAKEN or RUN_ID.fullmatch(name):
        raise AboutError(f"{name!r} cannot be a name: as RUN it means another run.")


def _check_word(word: str, what: str) -> None:
    if not _TAG.fullmatch(word) or len(word) > MAX_TAG_CHARACTERS:
        allowed = f"1 to {MAX_TAG_CHARACTERS} characters without spaces or commas"
        raise AboutError(f"{shown(word)} is not a {what}; it must be {allowed}.")
    _check_text(f"The {what} {shown(word)}", word)


def _check_text(what: str, text: str) -> None:
    if match := _CONTROL.search(text):
        raise AboutError(f"{what} has the control character {match[0]!r}; remove it.")


def _plain_lines(text: str) -> str:
    return "\n".join(line.rstrip(" ") for line in re.split("\r\n?|\n|\u2028|\u2029", text)).strip("\n")


class NotificationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Copied from the settings at launch: later changes are for later runs."""

    command: tuple[str, ...] = ()
    """A program and its arguments; empty for none."""
    webhook: str = ""
    """Where to post the run's facts; "" for nowhere. May be a secret: only the user may read the file."""


def write_notification_config(run: RunDir, settings: Settings) -> None:
    """Writes the order for a run's end, or removes it if the settings have none; raises OSError."""
    order = NotificationConfig(command=settings.command, webhook=settings.webhook)
    if order == NotificationConfig():
        run.notice.unlink(missing_ok=True)
    else:
        replace_unsynced(run.notice, msgspec.json.encode(order))


def take_notification_config(run: RunDir) -> NotificationConfig | None:
    """Removes and returns the order, so that nobody else carries it out too; None if there is none."""
    try:
        order = msgspec.json.decode(read_limited(run.notice, MAX_ORDER_BYTES), type=NotificationConfig)
    except (OSError, ValueError, RecursionError):
        order = None
    # Of several that have read it, one succeeds.
    with contextlib.suppress(OSError):
        run.notice.unlink()
        return order
    return None


def start_notice(run: RunDir) -> None:
    """Starts the notice of a run's end, if the user wants one; returns at once and never raises."""
    if not os.path.exists(run.notice):
        return
    try:
        # Its output goes where this process's output goes: to supervisor.log.
        subprocess.Popen(
            module("tuiapp.trainers.run.notice", str(run.path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        print(f"notice: cannot be sent: {error}", file=sys.stderr, flush=True)


Command: TypeAlias = Literal["stop", "stop-now", "checkpoint", "profile", "job-ends", "time-limit", "pruned"]
"""The last three stop a run as "stop" does: its own Slurm job ends, and a search has given it up."""


MOST_STEPS = 1000
"""Steps that one command may have profiled: their trace must fit into memory."""


def send_command(commands_dir: Path, command: Command, steps: int = 0) -> None:
    """Puts a command into a run's mailbox, "profile" with a number of steps. Raises OSError if it cannot be written."""
    # The name gives the order; the random part separates two senders.
    name = f"{time.time_ns():020d}-{os.urandom(2).hex()}.{command}{f'={steps}' * bool(steps)}"
    write_atomically(commands_dir / name, b"")


def take_commands(commands_dir: Path) -> list[str]:
    """Takes all commands out of the mailbox, oldest first, "profile" as "profile=STEPS"; other files are removed."""
    try:
        with os.scandir(commands_dir) as entries:
            # Dot files are commands still being written.
            names = sorted(Path(entry.path) for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []
    commands: list[str] = []
    for path in names:
        try:
            path.unlink()
        except OSError:
            # Already gone, or a directory, or not ours to remove: a file that stays must not be obeyed repeatedly.
            continue
        command, equals, steps = path.suffix.removeprefix(".").partition("=")
        is_right = 1 <= int(steps) <= MOST_STEPS if steps.isdecimal() and steps.isascii() else not equals
        if command in get_args(Command) and is_right and bool(equals) == (command == "profile"):
            commands.append(path.suffix.removeprefix("."))
    return commands


T = TypeVar("T")

MAX_WAITING_BYTES = 8 << 20
"""Linux lets a process have an environment of 6 MiB at most: execve(2)."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What the queue knows of a run."""

    order: float
    """The lower ones are first, of those with the same priority."""
    priority: int = 0
    """The higher ones are first."""
    held: bool = False
    """Whether it stays until it is released."""
    retry: int = 0
    """How many more times it is started after a failure that looks transient."""
    tried: int = 0
    """How often it has been started."""
    not_before: float = 0.0
    """Unix time of its next start at the earliest."""
    exclusive: bool = False
    """Whether no other run of this directory may run on the machine at the same time."""
    parallel: int = 0
    """How many of the queue's runs Slurm may have at a time; 0 for any number."""
    platform: str = "cpu"
    """The platform of the placed configuration."""
    devices: int = 1
    """What was asked for, before GPUs were chosen; 0 for all that are idle."""
    device_ids: tuple[str, ...] = ()
    """The GPUs that the run must have; empty for any."""
    per_device_batch_size: int = 0
    """What was asked for: it makes the global batch of the devices that are chosen."""
    on_slurm: bool = False
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    directory: str = "/"

    @property
    def rank(self) -> tuple[int, float]:
        """What the queue is sorted by, before the run's name."""
        return -self.priority, self.order

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.order)


class Entry(NamedTuple):
    run: RunDir
    waiting: Waiting

    @property
    def rank(self) -> tuple[tuple[int, float], str]:
        """What the queue is sorted by."""
        return self.waiting.rank, self.run.run_id


DAMAGED = Waiting(order=math.inf, held=True)
"""Stands for one that cannot be read: it is the last in the queue, and can be cancelled alone."""
UNREAD = Waiting(order=math.inf, retry=1, not_before=math.inf)
"""Stands for one that cannot be read now, as without a free file descriptor: it is read again later."""


def encode_exact(message: Any) -> bytes:
    """Encodes a message for `decode_exact`, which returns its text as it was, bytes that are no UTF-8 included."""
    return json.dumps(msgspec.to_builtins(message), indent=2).encode() + b"\n"


def decode_exact(text: str, type_: type[T]) -> T:
    """Decodes what `encode_exact` has encoded; raises ValueError, RecursionError."""
    return msgspec.convert(json.loads(text), type_)


def read_waiting(file: Path) -> Waiting | None:
    """Reads `waits.json` or `kept.json`; None if it is missing, else `DAMAGED` or `UNREAD` if it cannot be read."""
    try:
        return decode_exact(read_limited(file, MAX_WAITING_BYTES), Waiting)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A link, or another special file.
        return DAMAGED if error.errno in (errno.ELOOP, errno.EINVAL) else UNREAD
    except (ValueError, RecursionError):
        return DAMAGED


def write_waiting(file: Path, waiting: Waiting) -> None:
    """Writes it, readable by nobody else; raises OSError, also where an environment is too large."""
    text = encode_exact(waiting)
    if len(text) > MAX_WAITING_BYTES:
        size = f"an environment of {len(text) >> 20} MiB, of which {MAX_WAITING_BYTES >> 20} are kept"
        raise OSError(errno.E2BIG, size, str(file))
    write_atomically(file, text)


def note_started(run: RunDir) -> None:
    """Takes a run that has started out of the queue; what its session had stays only if it may start again.

    Raises OSError.
    """
    if (waiting := read_waiting(run.waits)) is None:
        return
    if waiting is UNREAD:
        raise OSError(errno.EAGAIN, "cannot be read now", str(run.waits))
    kept = msgspec.structs.replace(waiting, tried=waiting.tried + 1)
    if not kept.retry:
        kept = msgspec.structs.replace(kept, environment={})
    if kept.retry or kept.exclusive:
        write_waiting(run.kept, kept)
    else:
        # The keeper need not live until the run ends, and nobody else removes it.
        remove(run.kept)
    remove(run.waits)


def remove(file: Path) -> None:
    """Removes one of these files, whatever stands in its place. Raises OSError."""
    if os.path.isdir(file) and not os.path.islink(file):
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def find_waiting(runs_dir: Path) -> list[Entry]:
    """Returns the queue: the runs of a directory that wait in it, the next one first."""
    return sorted(_entries(runs_dir, RunDir.waits.name), key=lambda entry: entry.rank)


def find_kept(runs_dir: Path) -> list[Entry]:
    """Returns the runs that the queue has started and whose end nobody has noted yet."""
    return _entries(runs_dir, RunDir.kept.name)


def _entries(runs_dir: Path, name: str) -> list[Entry]:
    return [
        Entry(run, waiting)
        for run in find_run_dirs(runs_dir)
        if os.path.lexists(f"{run.path}/{name}") and (waiting := read_waiting(run.path / name))
    ]
