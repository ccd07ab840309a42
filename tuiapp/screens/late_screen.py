"""A screen whose content is made when it is first seen."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from textual.app import ComposeResult

from tuiapp.screens.latest_size import LatestSize

T = TypeVar("T")


class LateScreen(LatestSize[T]):
    """Stays empty while another screen lies over it from the start: its content would only take that one's time.

    Args:
        beneath: Another screen comes over it before it is seen.
    """

    def __init__(self, *, beneath: bool = False) -> None:
        super().__init__()
        self._beneath = beneath
        self.is_made = not beneath
        """Whether it has its content, or is being given it."""

    @abstractmethod
    def compose_content(self) -> ComposeResult:
        """What `compose` gives of other screens."""

    @abstractmethod
    async def begin(self) -> None:
        """What `on_mount` does on other screens."""

    def compose(self) -> ComposeResult:  # noqa: D102
        if self.is_made:
            yield from self.compose_content()

    async def on_mount(self) -> None:
        """Begin, unless nobody will see it."""
        if self.is_made:
            await self.begin()

    async def on_screen_resume(self) -> None:
        """Make the content once there is nothing over it."""
        if self._beneath:
            self._beneath = False
        elif not self.is_made:
            self.is_made = True
            await self.recompose()
            await self.begin()
