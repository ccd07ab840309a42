"""Lines of text whose parts have a role: a widget maps it to a colour, a pipe ignores it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.state.devices.figures import percent
from tuiapp.state.text import bar

Role: TypeAlias = Literal["", "bold", "muted", "good", "info", "warning", "error"] | int
"""A number is the index of one of the run's devices, which has that letter's colour."""


class Span(NamedTuple):
    text: str
    role: Role = ""
    track: bool = False  # a bar, drawn with its full extent


Line: TypeAlias = list[Span]


def line(*parts: str | Span) -> Line:
    """Returns a line of the parts that are not empty."""
    spans = (part if isinstance(part, Span) else Span(part) for part in parts)
    return [span for span in spans if span.text]


def bar_span(percent: float | None, width: int, role: Role) -> Span:
    """Returns a bar of `width` cells; blank where there is no value."""
    return Span(bar(percent / 100 if percent is not None else None, width), role, track=percent is not None)


def bar_row(
    label: Iterable[str | Span],
    value: float | None,
    room: int,
    role: Role,
    *note: str | Span,
    cells: int = 5,
    between: str | Span = " ",
) -> Line:
    """Returns a row of a label, a bar of `room` cells, its value in percent in `cells` cells, and notes."""
    blank = " " if room else ""
    return line(*label, " ", bar_span(value, room, role), blank, f"{percent(value):>{cells}}", between, " ", *note)


def join_fitting(words: Iterable[str], width: int, between: str = " · ") -> str:
    """Joins as many of the words as fit, in order; empty ones are left out."""
    text = ""
    for word in filter(None, words):
        longer = f"{text}{between}{word}" if text else word
        if len(longer) > width:
            break
        text = longer
    return text


def stacked(sections: Iterable[list[Line]]) -> list[Line]:
    """Joins the sections that are not empty, with an empty line between two of them."""
    return [one for section in sections if section for one in ([], *section)][1:]


def beside(row: Iterable[Line], cells: int, gap: int) -> Line:
    """Joins lines side by side, each in so many cells."""
    return [span for one in row for span in (*pad(one, cells), Span(" " * gap))][:-1]


def plain(spans: Iterable[Span]) -> str:
    """Returns a line as text alone."""
    return "".join(span.text for span in spans)


def pad(spans: Line, width: int) -> Line:
    """Returns a line of exactly `width` cells: padded, or cut with "…"; for characters one cell wide."""
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
