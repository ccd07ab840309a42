"""Timers that fire once, whatever else the machine does."""

from __future__ import annotations

from textual.message_pump import MessagePump
from textual.timer import Timer, TimerCallback


class ReliableTimers(MessagePump):
    """Makes the timers that an app, a screen or a widget sets for one time fire for certain, late if need be.

    Textual 8.2.8 skips what a timer is too late for, and looks whether it is as soon as it has taken the time it starts
    from. Where the process is held up just there for longer than the timer's delay, by another process or by a thread
    that has the interpreter, a timer for one time has nothing left and ends without a word. What sets itself up anew
    each time it has run would then never run again: the dashboard would stand still, with keys that work. Not reported
    upstream.
    """

    def set_timer(
        self, delay: float, callback: TimerCallback | None = None, *, name: str | None = None, pause: bool = False
    ) -> Timer:
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        # It begins once the caller has returned to the event loop.
        timer._skip = False
        return timer
