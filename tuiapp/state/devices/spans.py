"""Lines of text whose parts say what they mean, not how they look: a widget gives them colours, a pipe has none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.state.devices.figures import percent
from tuiapp.state.text import bar

Role: TypeAlias = Literal["", "bold", "muted", "good", "info", "warning", "error"] | int
"""What a part is: a number is a device of the run, by the place of its letter."""


class Span(NamedTuple):
    """A part of a line."""

    text: str
    role: Role = ""
    track: bool = False
    """It is a bar: how far it could go is to be seen."""


Line: TypeAlias = list[Span]


def line(*parts: str | Span) -> Line:
    """A line of parts; those that are empty are left out."""
    spans = (part if isinstance(part, Span) else Span(part) for part in parts)
    return [span for span in spans if span.text]


def bar_span(percent: float | None, width: int, role: Role) -> Span:
    """A bar of so many cells; where there is nothing to show, no track either."""
    return Span(bar(percent / 100 if percent is not None else None, width), role, track=percent is not None)


def bar_row(
    label: Iterable[str | Span], value: float | None, room: int, role: Role, *note: str | Span, cells: int = 5
) -> Line:
    """A row of a label, a bar of `room` cells, its value in percent in `cells` more, and what stands to its right."""
    between = " " if room else ""
    return line(*label, " ", bar_span(value, room, role), between, f"{percent(value):>{cells}}", "  ", *note)


def join_fitting(words: Iterable[str], width: int, between: str = " · ") -> str:
    """As many of the words as there is room for, in order; those that are empty are left out."""
    text = ""
    for word in filter(None, words):
        longer = f"{text}{between}{word}" if text else word
        if len(longer) > width:
            break
        text = longer
    return text


def stacked(sections: Iterable[list[Line]]) -> list[Line]:
    """The sections that are not empty, with an empty line between two of them."""
    return [one for section in sections if section for one in ([], *section)][1:]


def plain(spans: Iterable[Span]) -> str:
    """A line as text alone."""
    return "".join(span.text for span in spans)


def pad(spans: Line, width: int) -> Line:
    """A line of exactly that many cells: filled with spaces, or cut with "…"; for characters one cell wide."""
    length = sum(len(span.text) for span in spans)
    if length <= width:
        return [*spans, Span(" " * (width - length))] if length < width else spans
    kept: Line = []
    room = max(0, width - 1)
    for span in spans:
        if len(span.text) >= room:
            return [*kept, Span(span.text[:room] + ("…" if width else ""), span.role, span.track)]
        kept.append(span)
        room -= len(span.text)
    return kept
