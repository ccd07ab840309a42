"""Which device holds which part of each array."""

from __future__ import annotations

from collections.abc import Container
from itertools import zip_longest
from textwrap import wrap

from rich.cells import cell_len
from textual.content import Content

from tuiapp.trainers.config.division import apportion
from tuiapp.trainers.state.messages import describe_replicas
from tuiapp.trainers.state.rank_state import ArrayState, Block, Device, letter
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import fit, format_bytes, join_words, plural, sanitize
from tuiapp.view.devices.drawing import Line, Span, bar_span, line, pad
from tuiapp.view.devices.view import letter_span
from tuiapp.view.marks import series_color
from tuiapp.view.sharding import (
    WEIGHT,
    bytes_words,
    fit_first,
    held_of_each_kind,
    held_words,
    layout_words,
    only_listed,
    part_words,
    range_words,
    short_dtype,
    split_weights,
    split_words,
    with_spec,
)
from tuiapp.widgets.colors import MUTED, SEVERITY_STYLES, styled, text_on
from tuiapp.widgets.text_view import TextPanel

MAX_PICTURE_LINES = 8
LEAST_UNEVEN_CELLS = 4


def _sizes(block: Block) -> list[int]:
    return [stop - start for start, stop in block]


def _bytes_of(array: ArrayState, block: Block, devices: list[Device]) -> str:
    held = {shard.bytes for shard in array.shards[devices[0]] if tuple(shard.index) == block}
    return format_bytes(max(held, default=None))


def _if_they_fit(texts: list[str], widths: list[int]) -> list[str]:
    return texts if max(map(len, texts), default=0) + 2 <= min(widths) else [""] * len(texts)


class Picture:
    def __init__(self, names: dict[Device, str], width: int, *, dark: bool, height: int = 1) -> None:
        self._width, self._height = width, height
        self._letters = names
        self._colors = {device: series_color(index, dark=dark) for index, device in enumerate(names)}

    def draw(self, array: ArrayState, count: int = 0) -> list[Content]:
        """Draws an array; `count`: of the devices that hold it, if these are nodes."""
        every = array.blocks()
        blocks = {block: devices for block, devices in every.items() if all(stop > start for start, stop in block)}
        # An array smaller than the mesh leaves devices without a part.
        idle = [device for block, devices in every.items() if block not in blocks for device in devices]
        return [*self._parts(array, blocks, count), *([self._without(idle)] if idle else [])]

    def _parts(self, array: ArrayState, blocks: dict[Block, list[Device]], count: int) -> list[Content]:
        if not blocks:
            return []
        if array.layout == "replicated":
            return self._replicated(next(iter(blocks.values())), count)
        split = [d for d in array.split_dimensions() if len({block[d] for block in blocks}) > 1]
        if not split:
            return self._rows(array, list(blocks.items()), None)
        if len(split) > 2:
            return self._listed(blocks)
        if len(split) == 1:
            return self._rows(array, list(blocks.items()), split[0])
        rows: dict[tuple[int, int], list[tuple[Block, list[Device]]]] = {}
        for block, devices in blocks.items():
            rows.setdefault(block[split[0]], []).append((block, devices))
        if any(self._cell_width(len(row)) < 1 for row in rows.values()):
            return self._listed(blocks)
        lines = [line for row in list(rows.values())[:MAX_PICTURE_LINES] for line in self._row(array, row, split[1])]
        if len(rows) > MAX_PICTURE_LINES:
            lines.append(Content(f"… {plural(len(rows) - MAX_PICTURE_LINES, 'more row')}"))
        return lines

    def _cell_width(self, count: int) -> int:
        return (self._width - count - 1) // max(1, count)

    def _cell_widths(self, count: int) -> list[int]:
        """Returns the width of each cell; they fill the row unless narrow, and are then all equal."""
        width, over = divmod(max(count, self._width - count - 1), count)
        return [width + (index < over and width >= LEAST_UNEVEN_CELLS) for index in range(count)]

    def _rows(self, array: ArrayState, cells: list[tuple[Block, list[Device]]], dimension: int | None) -> list[Content]:
        widest = max((len(self._names(devices)) for _, devices in cells), default=1)
        if self._cell_width(len(cells)) >= min(widest, 3):
            return self._row(array, cells, dimension)
        per_line = max(1, (self._width - 1) // (max(widest, 3) + 1))
        lines = [cells[start : start + per_line] for start in range(0, len(cells), per_line)]
        rows = [self._row(array, line, dimension, of=per_line) for line in lines[:MAX_PICTURE_LINES]]
        shown = [line for row in rows for line in row]
        if len(lines) > MAX_PICTURE_LINES:
            shown.append(Content(f"… {plural(len(cells) - MAX_PICTURE_LINES * per_line, 'more part')}"))
        return shown

    def _names(self, devices: list[Device]) -> str:
        return " ".join(self._letters.get(device, "?") for device in devices)

    def _row(
        self, array: ArrayState, cells: list[tuple[Block, list[Device]]], dimension: int | None, of: int = 0
    ) -> list[Content]:
        """Draws parts along a dimension, hatched if on several devices, with room for at least `of` cells."""
        widths = self._cell_widths(max(of, len(cells)))
        sizes = [block[dimension][1] - block[dimension][0] for block, _ in cells] if dimension is not None else []
        if sizes and not of and max(sizes) - min(sizes) > 1 and sum(widths) >= LEAST_UNEVEN_CELLS * len(sizes):
            widths = list(apportion(sum(widths), sizes))
        names = [self._names(devices) for _, devices in cells]
        if dimension is not None:
            spans = [range_words(block[dimension]) for block, _ in cells]
            for blank in ("  ", " "):
                longer = [name + blank + span for name, span in zip(names, spans, strict=True)]
                if max(map(len, longer)) + len(blank) <= min(widths):
                    names = longer
                    break
        middle = self._height // 2
        lines = [names if row == middle else [""] * len(names) for row in range(self._height)]
        if self._height > 1:
            lines[middle - 1] = names
            lines[middle] = _if_they_fit(["×".join(map(str, _sizes(block))) for block, _ in cells], widths)
            lines[middle + 1] = _if_they_fit([_bytes_of(array, *cell) for cell in cells], widths)
        drawn = []
        for texts in lines:
            parts: list[Content] = [Content("│")]
            for text, width, (_, devices) in zip(texts, widths, cells, strict=False):
                parts += [self._part(text, width, devices), Content("│")]
            drawn.append(Content.assemble(*parts))
        return drawn

    def _part(self, text: str, width: int, devices: list[Device]) -> Content:
        color = self._colors.get(devices[0], "#999999")
        if len(devices) == 1:
            return Content.styled(text[:width].center(width), f"bold {text_on(color)} on {color}")
        inside = f" {text} " if text and len(text) + 2 <= width else text[:width]
        return Content.styled(inside.center(width, "░"), f"bold {color}")

    def _without(self, devices: list[Device]) -> Content:
        verb = "holds" if len(devices) == 1 else "hold"
        return Content.styled(f"{self._names(devices)} {verb} none of it", MUTED).truncate(self._width, ellipsis=True)

    def _replicated(self, devices: list[Device], count: int) -> list[Content]:
        """Draws all letters in one hatched cell: every device holds the same."""
        names: list[Content] = []
        for device in devices:
            names += [Content.styled(self._letters[device], f"bold {self._colors[device]}"), Content(" ")]
        inner = Content.assemble(" ", *names)
        room = self._width - 2 - inner.cell_length
        if room < 0:
            return [Content(f"║ the same on all {count or len(devices)} devices ║")]
        left = room // 2
        middle = Content.assemble("║", ("░" * left, MUTED), inner, ("░" * (room - left), MUTED), "║")
        around = Content.assemble("║", ("░" * (self._width - 2), MUTED), "║")
        return [middle if row == self._height // 2 else around for row in range(self._height)]

    def _listed(self, blocks: dict[Block, list[Device]]) -> list[Content]:
        lines = []
        for block, devices in list(blocks.items())[:MAX_PICTURE_LINES]:
            where = ", ".join(f"{start}:{stop}" for start, stop in block)
            lines.append(Content(f"{' '.join(self._letters[device] for device in devices)}  [{where}]"))
        if len(blocks) > MAX_PICTURE_LINES:
            lines.append(Content(f"… {plural(len(blocks) - MAX_PICTURE_LINES, 'more part')}"))
        return lines


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
            lines += [Content(""), *(styled(total, dark=dark) for total in totals)]
        return [*held, *lines]

    @staticmethod
    def held_lines(state: RunState, width: int, *, dark: bool) -> list[Content]:
        """Returns what devices hold of a training state that is split, and what a step exchanges of it; with a gap."""
        if not state.held:
            return []
        bars = [styled(bar, dark=dark) for bar in _held_by_each(state, width)]
        words = map(Content, wrap(join_words(held_words(state)), width, break_on_hyphens=False))
        lines = [*words, *bars, *_exchanges(state, width), Content("")]
        return [line.truncate(width, ellipsis=True) for line in lines]

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
            array = next(iter(kinds.values()))
            lines.append(Content(fit(f"{' and '.join(kinds)} {how}", width)))
            lines.append(Content.styled(fit(f"{array.name.split()[-1]}: {bytes_words(array)}", width), MUTED))
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
            by_node = array.by_node(state.node_of) if of_nodes else None
            lines += of_nodes.draw(by_node, len(array.devices)) if of_nodes and by_node else picture.draw(array)
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
    names = [sanitize(array.name.removeprefix(WEIGHT), 40) for array in listed]
    shapes = [f"{short_dtype(array.dtype)}[{','.join(map(str, array.shape))}]" for array in listed]
    widest, longest = max(map(cell_len, names)), max(map(len, shapes))
    letters = _lettered(state.devices())
    lines = [Content.styled("each weight, and its part of the optimizer state", "bold")]
    for array, name, shape in zip(listed, names, shapes, strict=True):
        start = f" {name:{widest}}  {shape:{longest}}  "
        parts = fit_first(part_words(array, letters), width - cell_len(start))
        lines.append(Content.assemble(start, (parts, MUTED)).truncate(width, ellipsis=True))
    return [*lines, Content("")]


def _exchanges(state: RunState, width: int) -> list[Content]:
    """Returns what of each part of the model a step gathers and reduces, when, and how many bytes; wrapped."""
    exchanged = next((held.exchanged for held in state.held.values() if held.exchanged), {})
    if not exchanged:
        return []
    names = {part: sanitize(part, 30) for part in exchanged}
    widest = max(map(cell_len, names.values()))
    lines = [Content(""), Content.styled("what a step exchanges", "bold")]
    for part, calls in exchanged.items():
        sizes: dict[str, list[str]] = {}
        for call, count in calls.items():
            collective, _, when = sanitize(call, 60).partition(" ")
            sizes.setdefault(f"{collective} {format_bytes(count)}", []).append(when)
        words = [f"{call} {' and '.join(when).replace('and before', 'and')}".rstrip() for call, when in sizes.items()]
        rows = wrap(join_words(words), max(LEAST_TOLD_CELLS, width - widest - 3), break_on_hyphens=False)
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
    for index, ((rank, name), held, note) in enumerate(zip(devices, sums, notes, strict=True)):
        filled = bar_span(100 * sum(held.values()) / most if most else 0.0, room, index)
        where = f"n{state.node_of(rank)}·" if state.nodes else ""
        label = Span(fit(f" {where}{sanitize(name, 20)}", DEVICE_CELLS - 1))
        lines.append(pad(line(letter_span(index), label, filled, Span(f"  {note}", "muted")), width))
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
