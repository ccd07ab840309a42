"""Moves the focus for a key that is pressed many times."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen
from textual.widget import Widget

STEPS = {"app.focus_next": 1, "app.focus_previous": -1}


def move_focus(screen: Screen[Any], key: str, times: int) -> int:
    """Moves the focus as `times` presses of a key do, painting only the end; returns how many presses only moved it."""
    chain, start = screen.focus_chain, screen.focused
    if start not in chain:
        return 0
    steps = dict[Widget, int]()
    at, moves = chain.index(start), 0
    try:
        while moves < times:
            widget = chain[at]
            if widget not in steps:
                # The active bindings depend on the focus.
                screen.set_reactive(Screen.focused, widget)
                active = screen.active_bindings.get(key)
                steps[widget] = STEPS.get(active.binding.action, 0) if active else 0
            if not steps[widget]:
                break
            at = (at + steps[widget]) % len(chain)
            moves += 1
    finally:
        screen.set_reactive(Screen.focused, start)
    screen.set_focus(chain[at])
    return moves
