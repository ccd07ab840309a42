"""A footer that is rebuilt only when its keys change, and has only keys that fit."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.keys import KEY_NAME_REPLACEMENTS, KEY_TO_UNICODE_NAME
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

PADDING_CELLS = 3

# Textual 8.2.8 does not know that these keys type a character: `/` would be offered while a text is typed.
KEY_TO_UNICODE_NAME.update(
    (short, KEY_TO_UNICODE_NAME.get(name, name.upper())) for name, short in KEY_NAME_REPLACEMENTS.items()
)


class SteadyFooter(Footer):
    """Keeps its keys when the focus moves between widgets with the same ones.

    Textual 8.2.8 rebuilds all of them, lays the screen out twice and recomputes their styles at every Tab.
    """

    _shown: object = None

    def __init__(self, *spare: str) -> None:
        """Actions in `spare` are left out where the width does not do for all, the first one first."""
        super().__init__(show_command_palette=False)
        self._spare = spare

    async def recompose(self) -> None:
        if not self.is_attached:
            return
        shown = dict[str, object]()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show:
                shown.setdefault(binding.action, (binding, enabled, tooltip))
        if list(shown.items()) != self._shown:
            self._shown = list(shown.items())
            await super().recompose()

    def compose(self) -> ComposeResult:
        keys = [key for key in super().compose() if isinstance(key, FooterKey)]
        self._fit(keys)
        yield from keys

    def on_resize(self) -> None:
        self._fit(list(self.query(FooterKey)))

    def _fit(self, keys: list[FooterKey]) -> None:
        cells = {key.action: cell_len(key.key_display) + cell_len(key.description) + PADDING_CELLS for key in keys}
        total, left_out = sum(cells.values()), set[str]()
        for action in self._spare:
            if total > self.app.size.width and action in cells:
                left_out.add(action)
                total -= cells[action]
        for key in keys:
            key.display = key.action not in left_out
