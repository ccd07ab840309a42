"""Which device holds which part of each array."""

from __future__ import annotations

from textual.content import Content

from tuiapp.state.array_state import ArrayState, Block, Device, letter
from tuiapp.state.run_facts import RunFacts
from tuiapp.state.text import format_bytes, join_words, plural, sanitize
from tuiapp.widgets.palette import MUTED, series_color, text_on
from tuiapp.widgets.text_panel import TextPanel

MAX_PICTURE_LINES = 8
MAX_PICTURE_CELLS = 96
"""Wider pictures say no more."""


class ShardingMap(TextPanel):
    """Every reported array with its shape, mesh and spec, and a picture of its parts."""

    WAITING = "no array has been reported yet"

    def lines(self, state: RunFacts, width: int) -> list[Content]:
        """A picture of each array, with its description above it."""
        picture = _Picture(state.devices(), min(width, MAX_PICTURE_CELLS), dark=self.app.current_theme.dark)
        # What is split comes first: it tells the parallelism apart; replicated arrays look all alike.
        arrays = sorted(state.arrays.values(), key=lambda array: array.layout == "replicated")
        lines: list[Content] = []
        for array in arrays:
            lines += _describe(array, width)
            lines += picture.draw(array)
            lines.append(Content(""))
        return lines[:-1]


def _describe(array: ArrayState, width: int) -> list[Content]:
    shape = ",".join(str(size) for size in array.shape)
    title = Content.assemble((array.name, "bold"), f"  {_short(array.dtype)}[{shape}]")
    size = f"{format_bytes(array.bytes_per_device)} each"
    gap = width - title.cell_length - len(size)
    first = Content.assemble(title, " " * gap, size) if gap > 0 else title.truncate(width, ellipsis=True)
    mesh = " × ".join(f"{sanitize(axis, 20)}={count}" for axis, count in array.mesh.items())
    spec = ", ".join(sanitize(axis, 20) if axis else "·" for axis in array.spec)
    how = {
        "single": "on one device",
        "replicated": f"replicated ×{len(array.devices)}",
        "split": "split",
        "split and replicated": "split, each part on several devices",
    }[array.layout]
    second = join_words(
        [how, "" if gap > 0 else size, f"spec ({spec})" if spec else "", f"mesh {mesh}" if mesh else ""]
    )
    return [first, Content.styled(second, MUTED).truncate(width, ellipsis=True)]


def _short(dtype: str) -> str:
    """The data type in few letters: "f32" for "float32" or "torch.float32"."""
    name = sanitize(dtype, 20).removeprefix("torch.")
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


class _Picture:
    """Draws arrays as cells, one per part: its devices' letters on their colours."""

    def __init__(self, devices: list[Device], width: int, *, dark: bool) -> None:
        self._width = width
        self._letters = {device: letter(index) for index, device in enumerate(devices)}
        self._colors = {device: series_color(index, dark=dark) for index, device in enumerate(devices)}

    def draw(self, array: ArrayState) -> list[Content]:
        """The picture's lines."""
        blocks = array.blocks()
        if array.layout == "replicated":
            return [self._replicated(next(iter(blocks.values())))]
        split = array.split_dimensions()
        if not split:
            return [self._row(list(blocks.items()), None)]
        if len(split) > 2:
            return self._listed(blocks)
        if len(split) == 1:
            return [self._row(list(blocks.items()), split[0])]
        rows: dict[tuple[int, int], list[tuple[Block, list[Device]]]] = {}
        for block, devices in blocks.items():
            rows.setdefault(block[split[0]], []).append((block, devices))
        lines = [self._row(row, split[1]) for row in list(rows.values())[:MAX_PICTURE_LINES]]
        if len(rows) > MAX_PICTURE_LINES:
            lines.append(Content(f"… {plural(len(rows) - MAX_PICTURE_LINES, 'more row')}"))
        return lines

    def _row(self, cells: list[tuple[Block, list[Device]]], dimension: int | None) -> Content:
        """Parts side by side, each on its device's colour: what is split."""
        count = len(cells)
        width = (self._width - count - 1) // count
        if width < 1:
            return Content(f"{count} parts on {len(self._letters)} devices: too many to draw")
        names = [" ".join(self._letters[device] for device in devices) for _, devices in cells]
        if dimension is not None:
            longer = [
                f"{name}  {block[dimension][0]}–{block[dimension][1] - 1}"
                for name, (block, _) in zip(names, cells, strict=True)
            ]
            names = longer if max(map(len, longer)) <= width else names
        parts: list[Content] = [Content("│")]
        for name, (_, devices) in zip(names, cells, strict=True):
            color = self._colors[devices[0]]
            parts += [Content.styled(name[:width].center(width), f"bold {text_on(color)} on {color}"), Content("│")]
        return Content.assemble(*parts)

    def _replicated(self, devices: list[Device]) -> Content:
        """All letters in one hatched cell: the same on every device."""
        names: list[Content] = []
        for device in devices:
            names += [Content.styled(self._letters[device], f"bold {self._colors[device]}"), Content(" ")]
        inner = Content.assemble(" ", *names)
        room = self._width - 2 - inner.cell_length
        if room < 0:
            return Content(f"║ the same on all {len(devices)} devices ║")
        left = room // 2
        return Content.assemble("║", ("░" * left, MUTED), inner, ("░" * (room - left), MUTED), "║")

    def _listed(self, blocks: dict[Block, list[Device]]) -> list[Content]:
        lines = []
        for block, devices in list(blocks.items())[:MAX_PICTURE_LINES]:
            where = ", ".join(f"{start}:{stop}" for start, stop in block)
            lines.append(Content(f"{' '.join(self._letters[device] for device in devices)}  [{where}]"))
        if len(blocks) > MAX_PICTURE_LINES:
            lines.append(Content(f"… {plural(len(blocks) - MAX_PICTURE_LINES, 'more part')}"))
        return lines
