"""The pictures and texts of a run."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection

import msgspec

from tuiapp.trainers.contract.events import Media
from tuiapp.trainers.contract.media import MAX_FILES, MAX_NAMES


class Kept(msgspec.Struct):
    """What is kept of a name."""

    files: list[Media] = []
    """Pictures and texts in the order of their steps."""
    left_out: int = 0
    """How many there were that are not among them."""

    def add(self, event: Media) -> None:
        gone = {event.file, *event.removed}
        self.left_out += event.left_out + len(event.removed)
        self.files = [file for file in self.files if file.file not in gone]
        self.files.insert(bisect(self.files, _place(event), key=_place), event)
        if len(self.files) > 4 * MAX_FILES:
            # Of hundreds of ranks.
            del self.files[1]
            self.left_out += 1


def _place(event: Media) -> tuple[int, str]:
    return event.step, event.file


def add(named: dict[str, Kept], event: Media) -> None:
    """Takes one more; of too many names, none."""
    if event.name in named or len(named) < MAX_NAMES:
        named.setdefault(event.name, Kept()).add(event)


def go_back(named: dict[str, Kept], step: int, names: Collection[str] | None = None) -> None:
    """Drops what came after a step, of some names, or of all."""
    for name, kept in list(named.items()):
        if names is not None and name not in names:
            continue
        kept.files = [file for file in kept.files if file.step <= step]
        if not kept.files:
            del named[name]


def steps_of(named: dict[str, Kept]) -> list[int]:
    """Returns the steps at which there is anything, ascending."""
    return sorted({file.step for kept in named.values() for file in kept.files})


def shown_at(named: dict[str, Kept], step: int | None) -> list[Media]:
    """Returns the last of each name and rank up to a step; None: up to the end."""
    latest: dict[tuple[str, int], list[Media]] = {}
    for kept in named.values():
        for file in kept.files:
            if step is None or file.step <= step:
                mine = latest.setdefault((file.name, file.rank), [])
                if mine and mine[-1].step != file.step:
                    mine.clear()
                mine.append(file)
    return [file for mine in latest.values() for file in mine]
