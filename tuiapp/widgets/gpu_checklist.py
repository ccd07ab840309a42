"""The GPUs of this machine, to choose among."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from trainers.config.machine import Gpu
from tuiapp.state.text import format_bytes, join_words, sanitize

NAME_CELLS = 24
"""What is shown of a GPU's name at most."""

LEAST_NAME_CELLS = 5
"""What is shown of it at least."""

PADDING_CELLS = 2
"""Of a line, left and right."""

VENDOR = "NVIDIA "
"""Left out of names where there is little room: the machine's line above has it."""


class GpuChecklist(OptionList):
    """One line per GPU: index, name, memory, utilization, who uses it. None checked means the first ones.

    Textual's `SelectionList` tells checked from unchecked by colour alone.
    """

    BINDING_GROUP_TITLE = "GPUs"

    DEFAULT_CSS = """
    GpuChecklist {
        height: auto;
        max-height: 10;
        margin-left: 2;
        padding: 0;
        border: none !important;
        background: transparent;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        & > .option-list--option { padding: 0 1; }
    }
    """

    class GpusChosen(Message):
        """The user checked or unchecked a GPU."""

        def __init__(self, device_ids: tuple[str, ...]) -> None:
            super().__init__()
            self.device_ids = device_ids
            """The indices of those checked, in order."""

    def __init__(self, *, gpus: Sequence[Gpu]) -> None:
        """Make the list.

        Args:
            gpus: What it lists.
        """
        super().__init__(*(Option(line) for line in describe_gpus(gpus, frozenset())))
        self._gpus = gpus
        self._room: int | None = None
        """Cells of a line; None before it has been laid out."""
        self._chosen: frozenset[str] = frozenset()
        """UUIDs: a GPU that falls off the bus shifts the indices of those after it."""

    def show(self, device_ids: Sequence[str]) -> None:
        """Check the GPUs that a configuration names, by index or by UUID."""
        named = set(device_ids)
        self._chosen = frozenset(gpu.uuid for gpu in self._gpus if {str(gpu.index), gpu.uuid} & named)
        self._write()

    def on_resize(self) -> None:
        """Say it in as many words as there is room for."""
        self._room = self.scrollable_content_region.width - PADDING_CELLS
        self._write()

    def _write(self) -> None:
        for number, line in enumerate(describe_gpus(self._gpus, self._chosen, self._room)):
            self.replace_option_prompt_at_index(number, line)

    def look_again(self, gpus: Sequence[Gpu]) -> bool:
        """Show what the same GPUs tell now, the cursor where it is; False when they are others."""
        if [gpu.uuid for gpu in gpus] != [gpu.uuid for gpu in self._gpus]:
            return False
        self._gpus = gpus
        self.show([*self._chosen])
        return True

    @property
    def details(self) -> str:
        """More of the GPU that the cursor is on."""
        return details(self._gpus[self.highlighted]) if self.highlighted is not None else ""

    @on(OptionList.OptionSelected)
    def _toggle(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._chosen ^= {self._gpus[event.option_index].uuid}
        chosen = tuple(str(gpu.index) for gpu in self._gpus if gpu.uuid in self._chosen)
        self.post_message(self.GpusChosen(chosen))


def describe_gpus(gpus: Sequence[Gpu], chosen: frozenset[str], room: int | None = None) -> list[Content]:
    """The lines of the list, in columns; what NVML does not tell is left out.

    Where there is little room the columns move together, then the maker goes, then the word "busy", then the names'
    ends: who uses a GPU is what one has to know.

    Args:
        gpus: All of them.
        chosen: UUIDs of those that are checked.
        room: Cells of a line; None for as many as are wanted.
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
    parts = [f"{'[x]' if chosen else '[ ]'} {gpu.index:>2}", sanitize(name, name_cells).ljust(name_cells)]
    if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
        # In the unit of the whole, so that the lines can be compared.
        total, unit = format_bytes(gpu.memory_total_bytes).split()
        free = (gpu.memory_total_bytes - gpu.memory_used_bytes) / gpu.memory_total_bytes * float(total)
        parts.append(f"{free:>4.{0 if free >= 99.5 else 1}f}/{total} {unit} free")
    if gpu.utilization_percent is not None:
        parts.append(f"{gpu.utilization_percent:3d} %{' busy' if words else ''}")
    if gpu.processes is not None:
        parts.append(", ".join(_users(gpu)) or "unused")
    return parts


def details(gpu: Gpu) -> str:
    """What a GPU's line may have no room for: what its users hold, and its UUID."""
    held = [f"{user} {words}" for user, words in _users(gpu).items()]
    busy = "" if gpu.utilization_percent is None else f"{gpu.utilization_percent} % busy"
    return join_words([busy, ", ".join(held), sanitize(gpu.uuid)])


def _users(gpu: Gpu) -> dict[str, str]:
    """Who holds memory of a GPU → with how many processes, and how much."""
    users: dict[str, list[int | None]] = {}
    for process in gpu.processes or ():
        # Without a name it is somebody outside of this container, or somebody whose processes are hidden.
        users.setdefault(sanitize(process.user) or "others", []).append(process.memory_bytes)
    words = {}
    for user, held in users.items():
        count = "1 process" if len(held) == 1 else f"{len(held)} processes"
        known = [memory for memory in held if memory is not None]
        words[user] = f"{count} {format_bytes(sum(known))}" if known else count
    return words
