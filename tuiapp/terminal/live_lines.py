"""Lines of a terminal that are redrawn in place, with a log that grows above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

_ERASE_ROW_ABOVE = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))


class LiveLines:
    def __init__(self, stream: TextIO) -> None:
        self.console = _Console(file=stream, force_terminal=True, highlight=False)
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._shown: Sequence[Text] = ()
        self._width = 0

    def draw(self, lines: Sequence[Text]) -> None:
        width = self.console.width
        if (lines, width) == (self._shown, self._width):
            return
        if not self._live.is_started:
            self._live.start()
        if width < self._width:
            # After a resize, lines may be broken into several rows: Rich counts one row a line.
            shown = (min(cell_len(line.plain), self._width) for line in self._shown)
            extra_rows = sum(max(0, (cells - 1) // width) for cells in shown)
            self.console.control(Control((ControlType.ERASE_IN_LINE, 2), *_ERASE_ROW_ABOVE * extra_rows))
        self._shown, self._width = lines, width
        self._live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), refresh=True)

    def print_above(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Does nothing: a hidden cursor would remain hidden after Ctrl-Z or a kill."""
        return False
