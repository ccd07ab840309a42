"""A picture of an array: which part of it lies on which device."""

from __future__ import annotations

from textual.content import Content

from tuiapp.trainers.config.division import apportion
from tuiapp.trainers.state.array_state import ArrayState, Block, Device
from tuiapp.trainers.state.text import format_bytes, plural
from tuiapp.view.palette import series_color
from tuiapp.view.sharding import range_words
from tuiapp.widgets.colors import MUTED, text_on

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
        return [width + (place < over and width >= LEAST_UNEVEN_CELLS) for place in range(count)]

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
        lines = self._in_the_middle(names)
        if self._height > 1:
            lines[self._height // 2 - 1] = names
            lines[self._height // 2] = _if_they_fit(["×".join(map(str, _sizes(block))) for block, _ in cells], widths)
            lines[self._height // 2 + 1] = _if_they_fit([_bytes_of(array, *cell) for cell in cells], widths)
        drawn = []
        for texts in lines:
            parts: list[Content] = [Content("│")]
            for text, width, (_, devices) in zip(texts, widths, cells, strict=False):
                parts += [self._part(text, width, devices), Content("│")]
            drawn.append(Content.assemble(*parts))
        return drawn

    def _in_the_middle(self, texts: list[str]) -> list[list[str]]:
        """Returns the texts of the cells for each line of a row."""
        return [texts if place == self._height // 2 else [""] * len(texts) for place in range(self._height)]

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
        return [middle if place == self._height // 2 else around for place in range(self._height)]

    def _listed(self, blocks: dict[Block, list[Device]]) -> list[Content]:
        lines = []
        for block, devices in list(blocks.items())[:MAX_PICTURE_LINES]:
            where = ", ".join(f"{start}:{stop}" for start, stop in block)
            lines.append(Content(f"{' '.join(self._letters[device] for device in devices)}  [{where}]"))
        if len(blocks) > MAX_PICTURE_LINES:
            lines.append(Content(f"… {plural(len(blocks) - MAX_PICTURE_LINES, 'more part')}"))
        return lines
