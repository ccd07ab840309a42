"""Keys that cannot be used where they are pressed say why."""

from __future__ import annotations

from typing import TypeVar

from textual import actions, events

from tuiapp.terminal.covered_screen import CoveredScreenFix

T = TypeVar("T")


class RefusingScreen(CoveredScreenFix[T]):
    """A screen whose footer and list of keys have only what can be used; the other keys say what they lack."""

    def why_not(self, action: str, *parameters: object) -> str:
        """Returns why an action of the screen cannot be used now, in a sentence; "" if it can."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self.why_not(action, *parameters)

    def on_key(self, event: events.Key) -> None:
        """Says why the key does nothing; it comes here before any binding is looked up."""
        bindings = self._bindings.key_to_bindings.get(event.key, ())
        asked = [
            (name, given) for namespace, name, given in (actions.parse(one.action) for one in bindings) if not namespace
        ]
        why = next((why for name, given in asked if (why := self.why_not(name, *given))), "")
        # A widget in focus, or the program, may use the same key.
        if why and event.key not in self.active_bindings:
            self.notify(why, markup=False)
