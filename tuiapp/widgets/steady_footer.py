"""A footer that is rebuilt only when its keys change."""

from __future__ import annotations

from textual.widgets import Footer


class SteadyFooter(Footer):
    """Keeps its keys when the focus moves between widgets with the same ones.

    Textual 8.2.8 rebuilds all of them, lays the screen out twice and recomputes their styles at every Tab.
    """

    _shown: object = None

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
