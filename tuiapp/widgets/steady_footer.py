"""A footer that is made anew only when its keys are others."""

from __future__ import annotations

from textual.widgets import Footer


class SteadyFooter(Footer):
    """Leaves its keys as they are when the focus moves between widgets with the same ones.

    Textual 8.2.8 makes all of them anew, lays the screen out twice, and works out their styles, at every Tab.
    """

    _shown: object = None
    """What its keys were made from."""

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
