"""A screen as text that people can read and compare: its characters, then the styles of each line's cells.

```
80x24
 the 24 lines, as they stand on the screen, without the spaces at their ends
== styles
1     kP12 Qa60 kP8         12 cells in style kP, then 60 in Qa, then 8 in kP
2-5   kP80
== legend
Qa    bold underline #e0e0e0 on #121212
kP    #e0e0e0 on #121212
```

A style's two letters follow from the style itself, so that a new one changes no line but its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.app import App
from textual.strip import Strip

DEFAULT = "default"
"""The terminal's own colour."""

_ATTRIBUTES = ("bold", "dim", "italic", "underline", "strike", "reverse")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Look(NamedTuple):
    """How a cell is drawn."""

    foreground: str = DEFAULT
    """`#rrggbb`, or a name of the terminal's 16 colours."""
    background: str = DEFAULT
    attributes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        set_ones = [name for name in _ATTRIBUTES if name in self.attributes]
        return " ".join([*set_ones, self.foreground, "on", self.background])


class Cell(NamedTuple):
    """One place of a screen."""

    text: str
    """A character with what is combined with it; "" behind one that takes two places."""
    look: Look = Look()

    @property
    def shows_foreground(self) -> bool:
        """Whether anything but the background is seen."""
        return not self.text.isspace() or bool(self.look.attributes & {"underline", "strike", "reverse"})


def screen_text(app: App[object]) -> str:
    """What an app shows now."""
    # As App.export_screenshot does it: what lies beneath a dialog is drawn too.
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens, simplify=True)
    strips: list[Iterable[Strip]] = getattr(update, "strips", [])
    return write([[cell for strip in line for cell in _cells(strip)] for line in strips])


def write(rows: Sequence[Sequence[Cell]]) -> str:
    """A screen's cells as text."""
    runs = [_runs(row) for row in rows]
    names = _names({look for row in runs for look, _ in row})
    told = [" ".join(f"{names[look]}{count}" for look, count in row) for row in runs]
    lines = [f"{max(map(len, rows), default=0)}x{len(rows)}"]
    lines += ["".join(cell.text for cell in row).rstrip(" ") for row in rows]
    lines.append("== styles")
    for styles, numbered in groupby(enumerate(told, start=1), key=lambda pair: pair[1]):
        numbers = [number for number, _ in numbered]
        which = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        lines.append(f"{which:<6}{styles}")
    lines.append("== legend")
    lines += [f"{name:<6}{look}" for look, name in sorted(names.items(), key=lambda pair: pair[1])]
    return "\n".join(lines) + "\n"


def read(text: str) -> list[list[Cell]]:
    """The cells of a screen that `write` wrote."""
    size, *lines = text.split("\n")
    width, height = map(int, size.split("x"))
    legend_at = lines.index("== legend", height)
    legend = dict(_read_look(line) for line in lines[legend_at + 1 :] if line)
    rows: list[list[Cell]] = []
    for line in lines[height + 1 : legend_at]:
        which, *told = line.split()
        first, last = (int(number) for number in (which.split("-") * 2)[:2])
        looks = [legend[run[:2]] for run in told for _ in range(int(run[2:]))]
        for number in range(first, last + 1):
            texts = _split(lines[number - 1])
            rows.append([Cell(*pair) for pair in zip([*texts, *" " * (width - len(texts))], looks, strict=True)])
    return rows


def _cells(strip: Strip) -> Iterable[Cell]:
    for segment in strip:
        look = _look(segment.style) if segment.style else Look()
        yield from (Cell(text, look) for text in _split(segment.text))


def _split(line: str) -> list[str]:
    """What stands in each cell of a line: combined characters in one, wide ones in one and "" in the next."""
    texts: list[str] = []
    for character in line:
        if (width := cell_len(character)) == 0 and texts:
            texts[-1] += character
        else:
            texts += [character, *[""] * (width - 1)]
    return texts


def _look(style: Style) -> Look:
    set_ones = frozenset(name for name in _ATTRIBUTES if getattr(style, name))
    return Look(_colour(style.color), _colour(style.bgcolor), set_ones)


def _colour(colour: Color | None) -> str:
    if colour is None:
        return DEFAULT
    return colour.triplet.hex if colour.triplet else colour.name


def _runs(row: Sequence[Cell]) -> list[tuple[Look, int]]:
    """Which looks follow each other; a space, of which only the ground is seen, goes with what stands beside it."""
    runs: list[tuple[Look, int, bool]] = []
    for cell in row:
        look, seen = cell.look, cell.shows_foreground
        if not runs:
            runs.append((look, 1, seen))
            continue
        before, count, before_seen = runs[-1]
        same_ground = before.background == look.background and "reverse" not in before.attributes | look.attributes
        lined = before.attributes & {"underline", "strike"}
        if before == look or (same_ground and not seen and not lined):
            runs[-1] = (before, count + 1, before_seen or seen)
        elif same_ground and not before_seen and not look.attributes & {"underline", "strike"}:
            runs[-1] = (look, count + 1, True)
        else:
            runs.append((look, 1, seen))
    return [
        (look if seen else Look(DEFAULT, look.background, look.attributes - {"bold", "dim", "italic"}), count)
        for look, count, seen in runs
    ]


def _names(looks: Iterable[Look]) -> dict[Look, str]:
    names: dict[Look, str] = {}
    taken: set[str] = set()
    for look in sorted(looks, key=str):
        place = crc32(str(look).encode())
        while (name := _LETTERS[place % 52] + _LETTERS[place // 52 % 52]) in taken:
            place += 1
        taken.add(name)
        names[look] = name
    return names


def _read_look(line: str) -> tuple[str, Look]:
    found = re.fullmatch(r"(\w\w) +((?:[a-z]+ )*?)(\S+) on (\S+)", line)
    assert found, line
    name, attributes, foreground, background = found.groups()
    return name, Look(foreground, background, frozenset(attributes.split()))
