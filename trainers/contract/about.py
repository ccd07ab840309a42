"""What the user calls a run: its name, group, tags and note, in a file that any process may change at any time."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from tuiapp.trainers.config.files import read_limited, write_atomically
from tuiapp.trainers.config.options import shown
from tuiapp.trainers.contract.lock import alone
from tuiapp.trainers.contract.rundir import RUN_ID, RunDir

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


def write_about(run: RunDir, about: About) -> None:
    """Raises OSError."""
    write_atomically(run.about, msgspec.json.format(msgspec.json.encode(about)) + b"\n")


def split_tags(text: str) -> tuple[str, ...]:
    """The tags of a text in which commas or spaces separate them."""
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
    if found := _CONTROL.search(text):
        raise AboutError(f"{what} has the control character {found[0]!r}; remove it.")


def _plain_lines(text: str) -> str:
    return "\n".join(line.rstrip(" ") for line in re.split("\r\n?|\n|\u2028|\u2029", text)).strip("\n")
