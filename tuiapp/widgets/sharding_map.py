"""Which device holds which part of each array."""

from __future__ import annotations

from collections.abc import Container
from itertools import zip_longest
from textwrap import wrap

from rich.cells import cell_len
from textual.content import Content

from tuiapp.trainers.state.array_state import ArrayState, Device, letter
from tuiapp.trainers.state.messages import describe_replicas
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import fit, format_bytes, join_words, sanitize
from tuiapp.view.devices.drawing import Line, Span, bar_span, line, pad
from tuiapp.view.devices.view import letter_span
from tuiapp.view.sharding import (
    WEIGHT,
    bytes_words,
    fit_first,
    held_of_each_kind,
    held_words,
    layout_words,
    only_listed,
    part_words,
    short_dtype,
    split_weights,
    split_words,
    with_spec,
)
from tuiapp.widgets.colors import MUTED, SEVERITY_STYLES, styled
from tuiapp.widgets.sharding_picture import Picture
from tuiapp.widgets.text_view import TextPanel

HELD = {"parameter": "parameters", "optimizer": "optimizer"}
"""Kinds of what devices hold, by the first word of an array's name."""

INPUTS = ("batch", "labels")
"""Arrays that each step has anew, split as the first one."""

MOST_LETTERS = 16
"""Most letters that anyone can tell apart; the parts of more devices are shown by node."""

LEAST_TOLD_CELLS = 24  # of what is exchanged, beside the names of the parts
LEAST_BAR_CELLS = 4  # with what a device holds of each kind beside it
DEVICE_CELLS = 12  # beside the bar of what a device holds
HEIGHTS = (5, 3)  # of a part, where the panel is large and they have room


class ShardingMap(TextPanel):
    WAITING = "no array has been reported yet"

    def lines(self, state: RunState, width: int) -> list[Content]:
        dark = self.app.current_theme.dark
        if not self.screen.has_class("-one"):
            return self.brief_lines(state, width, dark=dark)
        lines = self.picture_lines(state, width, dark=dark)
        held = [*_replica_lines(state, width), *self.held_lines(state, width, dark=dark), *weight_lines(state, width)]
        devices = [] if state.held else state.devices()
        room = self.size.height - len(held) - len(devices) - 2
        # Where they have room.
        if 0 < len(lines) <= room:
            taller = (self.picture_lines(state, width, dark=dark, height=height) for height in HEIGHTS)
            lines = next((drawn for drawn in taller if len(drawn) <= room), lines)
            totals = _totals(state, devices, width) if devices else []
            lines += [Content(""), *(styled(one, dark=dark) for one in totals)]
        return [*held, *lines]

    @staticmethod
    def held_lines(state: RunState, width: int, *, dark: bool) -> list[Content]:
        """Returns what devices hold of a training state that is split, and what a step exchanges of it; with a gap."""
        if not state.held:
            return []
        each = [styled(one, dark=dark) for one in _held_by_each(state, width)]
        words = map(Content, wrap(join_words(held_words(state)), width, break_on_hyphens=False))
        lines = [*words, *each, *_exchanges(state, width), Content("")]
        return [one.truncate(width, ellipsis=True) for one in lines]

    @staticmethod
    def brief_lines(state: RunState, width: int, *, dark: bool) -> list[Content]:
        """Returns what is split and what is replicated in a line each, and the pictures of what is sharded."""
        arrays = list(state.arrays.values())
        lines = [Content(fit(split_words(array), width)) for array in arrays if array.name in INPUTS[:1]]
        lines += [Content(fit(words, width)) for words in held_words(state)]
        sharded: set[str] = set()
        held: dict[str, dict[str, ArrayState]] = {}
        listed = only_listed(state)
        for array in arrays:
            if array.name in INPUTS or array.name in listed:
                continue
            if array.layout in ("single", "replicated"):
                kind = array.name.split()[0]
                held.setdefault(layout_words(array), {}).setdefault(HELD.get(kind, array.name), array)
            else:
                sharded.add(array.name)
        for how, kinds in held.items():
            one = next(iter(kinds.values()))
            lines.append(Content(fit(f"{' and '.join(kinds)} {how}", width)))
            lines.append(Content.styled(fit(f"{one.name.split()[-1]}: {bytes_words(one)}", width), MUTED))
        lines += _replica_lines(state, width)
        if listed:
            lines.append(Content.styled("4 shows each weight", MUTED))
        if sharded:
            pictures = ShardingMap.picture_lines(state, width, dark=dark, among=sharded)
            lines = [*lines, Content(""), *pictures] if lines else pictures
        elif lines:
            lines.append(Content.styled("4 shows a picture", MUTED))
        return lines

    @staticmethod
    def picture_lines(
        state: RunState, width: int, *, dark: bool, height: int = 1, among: Container[str] | None = None
    ) -> list[Content]:
        """Returns the lines for a dark or light theme, with `height` lines for each row of parts.

        `among` are the names of the arrays; by default all but those that are listed in a line each.
        """
        devices = state.devices()
        picture = Picture(_lettered(devices), width, dark=dark, height=height)
        of_nodes = None
        if state.nodes and len(devices) > MOST_LETTERS:
            names = {(number, f"n{number}"): f"n{number}" for number in state.nodes}
            of_nodes = Picture(names, width, dark=dark, height=height)
        # Sharded arrays first: they show the parallelism; replicated arrays all look alike.
        listed = only_listed(state)
        shown = [array for array in state.arrays.values() if array.name not in (listed if among is None else ())]
        shown = [array for array in shown if among is None or array.name in among]
        arrays = sorted(shown, key=lambda array: array.layout == "replicated")
        lines: list[Content] = []
        for array in arrays:
            lines += _describe(array, width)
            whole = array.by_node(state.node_of) if of_nodes else None
            lines += of_nodes.draw(whole, len(array.devices)) if of_nodes and whole else picture.draw(array)
            lines.append(Content(""))
        return lines[:-1]


def _replica_lines(state: RunState, width: int) -> list[Content]:
    """Returns whether the replicas were equal when they were compared last; nothing where there are none."""
    if state.replicas is None:
        return []
    style = SEVERITY_STYLES["error"] if state.replicas.differing else MUTED
    return [Content.styled(fit(f"weights: {describe_replicas(state.replicas)}", width), style)]


def weight_lines(state: RunState, width: int) -> list[Content]:
    """Returns a line for each weight: its shape, and which device holds which part; with a gap."""
    listed = split_weights(state)
    if not listed:
        return []
    names = [sanitize(one.name.removeprefix(WEIGHT), 40) for one in listed]
    shapes = [f"{short_dtype(one.dtype)}[{','.join(map(str, one.shape))}]" for one in listed]
    widest, longest = max(map(cell_len, names)), max(map(len, shapes))
    letters = _lettered(state.devices())
    lines = [Content.styled("each weight, and its part of the optimizer state", "bold")]
    for one, name, shape in zip(listed, names, shapes, strict=True):
        start = f" {name:{widest}}  {shape:{longest}}  "
        told = fit_first(part_words(one, letters), width - cell_len(start))
        lines.append(Content.assemble(start, (told, MUTED)).truncate(width, ellipsis=True))
    return [*lines, Content("")]


def _exchanges(state: RunState, width: int) -> list[Content]:
    """Returns what of each part of the model a step gathers and reduces, when, and how many bytes; wrapped."""
    found = next((one.exchanged for one in state.held.values() if one.exchanged), {})
    if not found:
        return []
    names = {part: sanitize(part, 30) for part in found}
    widest = max(map(cell_len, names.values()))
    lines = [Content(""), Content.styled("what a step exchanges", "bold")]
    for part, calls in found.items():
        sizes: dict[str, list[str]] = {}
        for call, count in calls.items():
            collective, _, when = sanitize(call, 60).partition(" ")
            sizes.setdefault(f"{collective} {format_bytes(count)}", []).append(when)
        told = [f"{call} {' and '.join(when).replace('and before', 'and')}".rstrip() for call, when in sizes.items()]
        rows = wrap(join_words(told), max(LEAST_TOLD_CELLS, width - widest - 3), break_on_hyphens=False)
        for name, row in zip_longest([names[part]], rows, fillvalue=""):
            lines.append(Content.assemble(f" {name:{widest}}  ", (row, MUTED)))
    return lines


def _totals(state: RunState, devices: list[Device], width: int) -> list[Line]:
    """Returns a line per device: the bytes that it holds of these arrays, and what they are."""
    sums: list[dict[str, int]] = []
    for device in devices:
        held: dict[str, int] = {}
        for array in state.arrays.values():
            kind = array.name.split()[0]
            held[kind] = held.get(kind, 0) + sum(shard.bytes for shard in array.shards.get(device, ()))
        sums.append(held)
    most = max((sum(held.values()) for held in sums), default=0)
    lines = _bars(state, devices, sums, most, width)
    return [line(Span("what each device holds of these arrays", "bold")), *lines]


def _held_by_each(state: RunState, width: int) -> list[Line]:
    """Returns a line per device: what it holds of the training state that is split, of what a replica would take."""
    if not 0 < len(state.held) <= MOST_LETTERS:
        return []
    devices = sorted(state.held)
    sums = [state.held[device].held for device in devices]
    return _bars(state, devices, sums, sum(state.held[devices[0]].whole.values()), width)


def _bars(state: RunState, devices: list[Device], sums: list[dict[str, int]], most: int, width: int) -> list[Line]:
    """Returns a line per device: the bytes that it holds by kind, in a bar up to `most`."""
    lines: list[Line] = []
    notes = [held_of_each_kind(held) for held in sums]
    if max(map(len, notes), default=0) > width - DEVICE_CELLS - LEAST_BAR_CELLS - 2:
        notes = [format_bytes(sum(held.values())) for held in sums]
    room = max(1, width - DEVICE_CELLS - max(map(len, notes), default=0) - 2)
    for place, ((rank, name), held, note) in enumerate(zip(devices, sums, notes, strict=True)):
        filled = bar_span(100 * sum(held.values()) / most if most else 0.0, room, place)
        where = f"n{state.node_of(rank)}·" if state.nodes else ""
        label = Span(fit(f" {where}{sanitize(name, 20)}", DEVICE_CELLS - 1))
        lines.append(pad(line(letter_span(place), label, filled, Span(f"  {note}", "muted")), width))
    return lines


def _describe(array: ArrayState, width: int) -> list[Content]:
    shape = ",".join(str(size) for size in array.shape)
    title = Content.assemble((array.name, "bold"), f"  {short_dtype(array.dtype)}[{shape}]")
    size = bytes_words(array)
    gap = width - title.cell_length - len(size)
    first = Content.assemble(title, " " * gap, size) if gap > 0 else title.truncate(width, ellipsis=True)
    second = with_spec([layout_words(array), "" if gap > 0 else size], array, width)
    return [first, Content.styled(second, MUTED).truncate(width, ellipsis=True)]


def _lettered(devices: list[Device]) -> dict[Device, str]:
    return {device: letter(index) for index, device in enumerate(devices)}
