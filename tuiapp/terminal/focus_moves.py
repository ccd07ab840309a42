"""Where the focus goes when a key is pressed many times."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen
from textual.widget import Widget

STEPS = {"app.focus_next": 1, "app.focus_previous": -1}


def move_focus(screen: Screen[Any], key: str, times: int) -> int:
    """Moves the focus as pressing a key does, but paints and restyles only where it starts and ends.

    Args:
        screen: The one on top.
        key: As Textual calls it.
        times: How often it is pressed.

    Returns:
        How many of the presses that was: those before the first that does something else than move the focus.
    """
    chain, start = screen.focus_chain, screen.focused
    if start not in chain:
        return 0
    steps = dict[Widget, int]()
    at, moves = chain.index(start), 0
    try:
        while moves < times:
            widget = chain[at]
            if widget not in steps:
                # Which bindings are active depends on what has the focus.
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
