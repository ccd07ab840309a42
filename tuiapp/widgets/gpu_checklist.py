"""The list for choosing among this machine's GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tuiapp.trainers.config.gpu_choice import Use, use_of
from tuiapp.trainers.config.machine import Gpu
from tuiapp.trainers.config.settings import current_settings
from tuiapp.trainers.state.text import format_bytes, join_words, sanitize
from tuiapp.view.devices.drawing import SYSTEM_MEMORY
from tuiapp.view.launch_warnings import describe_use, user_names

NAME_CELLS = 24
"""Most cells of a GPU's name."""

LEAST_NAME_CELLS = 5
PADDING_CELLS = 2

VENDOR = "NVIDIA "
"""Dropped from names where space is short: the machine's line above has it."""


class GpuChecklist(OptionList):
    """A line for idle ones, and one per GPU. Textual's `SelectionList` shows checked by colour alone."""

    BINDING_GROUP_TITLE = "GPUs"

    DEFAULT_CSS = """
    GpuChecklist {
        height: auto;
        max-height: 11;
        margin-left: 2;
        padding: 0;
        border: none !important;
        background: transparent;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        & > .option-list--option { padding: 0 1; }
    }
    """

    @dataclass
    class GpusChosen(Message):
        """The user checked or unchecked a GPU."""

        device_ids: tuple[str, ...]
        """Numbers of the checked GPUs, in order; none: idle ones."""

    def __init__(self, *, gpus: Sequence[Gpu]) -> None:
        super().__init__(*(Option(line) for line in [_idle_line(gpus, True), *describe_gpus(gpus, frozenset())]))
        self._gpus = gpus
        self._room: int | None = None
        """Cells of a line; None before the first layout."""
        self._chosen: frozenset[str] = frozenset()
        """UUIDs: a GPU that falls off the bus shifts the indices of those after it."""

    def show(self, device_ids: Sequence[str]) -> None:
        named = set(device_ids)
        self._chosen = frozenset(gpu.uuid for gpu in self._gpus if {gpu.number, gpu.uuid} & named)
        self._write()

    def on_blur(self) -> None:
        # Where there is little room it has one line now.
        self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._room = self.scrollable_content_region.width - PADDING_CELLS
        self._write()

    def _write(self) -> None:
        lines = [_idle_line(self._gpus, not self._chosen), *describe_gpus(self._gpus, self._chosen, self._room)]
        for number, line in enumerate(lines):
            self.replace_option_prompt_at_index(number, line)

    def update(self, gpus: Sequence[Gpu]) -> bool:
        """Updates the readings of the same GPUs, keeping the cursor; returns False if the GPUs differ."""
        if [gpu.uuid for gpu in gpus] != [gpu.uuid for gpu in self._gpus]:
            return False
        self._gpus = gpus
        self.show([*self._chosen])
        return True

    @property
    def details(self) -> str:
        """What is said of the line at the cursor: of the first one which GPUs are idle."""
        if self.highlighted == 0:
            settings = current_settings()
            memory, load = settings.idle_memory, settings.idle_load
            return (
                f"idle: no run or process of others, at most {memory} % of the memory in use, and below {load} % busy"
            )
        return details(self._gpus[self.highlighted - 1]) if self.highlighted else ""

    @on(OptionList.OptionSelected)
    def _toggle(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        # The first line is for idle ones.
        self._chosen = self._chosen ^ {self._gpus[event.option_index - 1].uuid} if event.option_index else frozenset()
        self._write()
        chosen = tuple(gpu.number for gpu in self._gpus if gpu.uuid in self._chosen)
        self.post_message(self.GpusChosen(chosen))


def _idle_line(gpus: Sequence[Gpu], chosen: bool) -> Content:
    idle, shared = ([gpu.number for gpu in gpus if use_of(gpu) == use] for use in (Use.IDLE, Use.SHARED))
    text = "none is now: all, or those with the least memory in use"
    if shared:
        text = f"none is now; shared with others: {', '.join(shared)}"
    if idle:
        text = f"now {', '.join(idle)}"
    return Content(f"{'[x]' if chosen else '[ ]'} idle ones · {text}")


def describe_gpus(gpus: Sequence[Gpu], chosen: frozenset[str], room: int | None = None) -> list[Content]:
    """Returns the list's lines in columns of `room` cells (None: no limit); omits what NVML does not report.

    As the room shrinks, columns move together, then the maker, the word "busy" and the ends of names are dropped: who
    uses a GPU matters most. `chosen` has the UUIDs of the checked GPUs.
    """
    full = min(NAME_CELLS, max((len(gpu.name) for gpu in gpus), default=0))
    bare = min(NAME_CELLS, max((len(gpu.name.removeprefix(VENDOR)) for gpu in gpus), default=0))
    ways = [("  ", full, True, True), (" ", full, True, True), (" ", bare, False, True)]
    ways += [(" ", cells, False, False) for cells in range(bare, min(bare, LEAST_NAME_CELLS) - 1, -1)]
    lines: list[str] = []
    for gap, cells, vendor, words in ways:
        lines = [gap.join(_parts(gpu, gpu.uuid in chosen, cells, vendor, words)) for gpu in gpus]
        if room is None or max(map(len, lines), default=0) <= room:
            break
    return [Content(line) for line in lines]


def _parts(gpu: Gpu, chosen: bool, name_cells: int, vendor: bool, words: bool) -> list[str]:
    name = gpu.name if vendor else gpu.name.removeprefix(VENDOR)
    parts = [f"{'[x]' if chosen else '[ ]'} {gpu.number:>2}", sanitize(name, name_cells).ljust(name_cells)]
    if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
        # In the unit of the total, so that lines can be compared.
        total, unit = format_bytes(gpu.memory_total_bytes).split()
        free = (gpu.memory_total_bytes - gpu.memory_used_bytes) / gpu.memory_total_bytes * float(total)
        whose = " (system)" if gpu.has_system_memory else ""
        parts.append(f"{free:>4.{0 if free >= 99.5 else 1}f}/{total} {unit} free{whose}")
    if gpu.utilization_percent is not None:
        parts.append(f"{gpu.utilization_percent:3d} %{' busy' if words else ''}")
    if gpu.processes is not None:
        parts.append(", ".join(user_names(gpu)) or "unused")
    return parts


def details(gpu: Gpu) -> str:
    """Returns what a GPU's line may omit: its users' memory and its UUID."""
    return join_words([SYSTEM_MEMORY if gpu.has_system_memory else "", describe_use(gpu), sanitize(gpu.uuid)])
