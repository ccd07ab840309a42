"""The GPUs of this machine, to choose among."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from trainers.contract.machine import Gpu
from tuiapp.state.text import format_bytes, sanitize


class GpuChecklist(OptionList):
    """One line per GPU: index, name, free memory, utilization. None checked means the first ones.

    Textual's `SelectionList` tells checked from unchecked by colour alone.
    """

    BINDING_GROUP_TITLE = "GPUs"

    DEFAULT_CSS = """
    GpuChecklist {
        height: auto;
        max-height: 10;
        margin-left: 17;
        padding: 0;
        border: none !important;
        background: transparent;
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
        super().__init__(*(Option(describe_gpu(gpu, False)) for gpu in gpus))
        self._gpus = gpus
        self._chosen: set[int] = set()

    def show(self, device_ids: Sequence[str]) -> None:
        """Check the GPUs that a configuration names, by index or by UUID."""
        named = set(device_ids)
        self._chosen = {number for number, gpu in enumerate(self._gpus) if {str(gpu.index), gpu.uuid} & named}
        for number, gpu in enumerate(self._gpus):
            self.replace_option_prompt_at_index(number, describe_gpu(gpu, number in self._chosen))

    @on(OptionList.OptionSelected)
    def _toggle(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._chosen ^= {event.option_index}
        self.post_message(self.GpusChosen(tuple(str(self._gpus[number].index) for number in sorted(self._chosen))))


def describe_gpu(gpu: Gpu, chosen: bool) -> Content:
    """A GPU's line in the list; what NVML does not tell is left out."""
    parts = ["[x]" if chosen else "[ ]", f"{gpu.index}", sanitize(gpu.name)]
    if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
        free = format_bytes(gpu.memory_total_bytes - gpu.memory_used_bytes)
        parts.append(f"{free:>8} of {format_bytes(gpu.memory_total_bytes)} free")
    if gpu.utilization_percent is not None:
        parts.append(f"{gpu.utilization_percent:3d} % busy")
    return Content("  ".join(parts))
