"""Draws what the form's fields would show until they are built.

Building, styling and laying out some sixty widgets would delay the first picture by a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from trainers.config.options import GROUPS
from tuiapp.view.draft import Draft
from tuiapp.widgets.field_label import CONTROL_CELLS, FAINT, LABEL_CELLS, FieldWords

BETWEEN_COLUMNS = 3
CONTROL_STYLE = "$foreground on $surface"


def form_picture(words: Sequence[FieldWords], draft: Draft, *, width: int, columns: int, roomy: bool) -> list[Content]:
    """With two columns the second and last groups are beside the third, below the first, as in configure.tcss."""
    first, second, third, last = GROUPS
    after = {name: [Content("")] if roomy and name != last else [] for name in GROUPS}

    shown = {one.option.group for one in words if one.option.key not in draft.hidden}

    def stack(names: Sequence[str], room: int) -> list[Content]:
        names = [name for name in names if name in shown]
        return [_exactly(line, room) for name in names for line in _group(name, words, draft, room) + after[name]]

    if columns == 1:
        return stack(GROUPS, width)
    half = (width - BETWEEN_COLUMNS) // 2
    rooms = (half, width - BETWEEN_COLUMNS - half)
    beside = third in shown
    parts = [
        stack((second, last) if beside else (second,), rooms[0]),
        stack((third,) if beside else (last,), rooms[1]),
    ]
    height = max(map(len, parts))
    filled = [
        [*part, *[_exactly(Content(""), room)] * (height - len(part))] for part, room in zip(parts, rooms, strict=True)
    ]
    gap = Content(" " * BETWEEN_COLUMNS)
    return [*stack((first,), width), *(gap.join(cells) for cells in zip(*filled, strict=True))]


def _group(name: str, words: Sequence[FieldWords], draft: Draft, width: int) -> list[Content]:
    rule = "$primary 50%"
    title = Content.assemble(("─", rule), (f" {name} ", "bold $text-primary"), ("─" * (width - len(name) - 3), rule))
    lines = [title]
    for one in words:
        key = one.option.key
        if one.option.group == name and key not in draft.hidden:
            lines.append(_exactly(_line(one, key in draft.changed, width), width))
            for part in _wrapped(draft.problems.get(key, ""), width - LABEL_CELLS):
                lines.append(_exactly(Content.assemble(" " * LABEL_CELLS, part), width))  # noqa: PERF401
    return lines


def _line(words: FieldWords, changed: bool, width: int) -> Content:
    text = Content(words.text)
    if words.option.prefix_of(words.text) or words.option.text != "word":
        # An empty input shows what it is for.
        told = text or Content(words.option.help)
        path = told.truncate(width - LABEL_CELLS - 2, ellipsis=False, pad=True)
        control = Content.assemble(" ", path, " ").stylize(CONTROL_STYLE)
        return Content.assemble(words.label(changed), control if text else control.stylize(FAINT))
    if words.option.menu:
        shown = text.truncate(CONTROL_CELLS - 4, ellipsis=True, pad=True).append(" ▾")
    else:
        shown = text.truncate(CONTROL_CELLS - 2, ellipsis=False, pad=True)
    control = Content.assemble(" ", shown, " ").stylize(CONTROL_STYLE)
    return Content.assemble(words.label(changed), control, "  ", words.help_within(width))


def _wrapped(problem: str, width: int) -> list[Content]:
    return Content.styled(f"✗ {problem}", "$text-error").wrap(width) if problem else []


def _exactly(content: Content, width: int) -> Content:
    return content.truncate(width, pad=True)
