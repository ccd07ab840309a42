"""Timers that fire once, whatever else the machine does."""

from __future__ import annotations

from textual.timer import Timer


def sure(timer: Timer) -> Timer:
    """Make a timer that has just been set for one time fire for certain, late if need be.

    Textual 8.2.8 skips what a timer is too late for, and looks whether it is as soon as it has taken the time it starts
    from. Where the process is held up just there for longer than the timer's delay, by another process or by a thread
    that has the interpreter, a timer for one time has nothing left and ends without a word. What sets itself up anew
    each time it has run would then never run again: the dashboard would stand still, with keys that work.

    Args:
        timer: As `set_timer` gave it; it begins once the caller has returned to the event loop.
    """
    timer._skip = False
    return timer
