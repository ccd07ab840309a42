"""One-shot timers that always fire."""

from __future__ import annotations

from textual.message_pump import MessagePump
from textual.timer import Timer, TimerCallback


class ReliableTimers(MessagePump):
    """Makes one-shot timers of an app, screen or widget fire for certain, late if need be.

    Textual 8.2.8 skips a timer's overdue ticks, and checks that right after reading its start time. If the process is
    held up between the two for longer than the delay, a one-shot timer ends silently, and a chain of them stops: the
    dashboard would freeze while keys still work. Not reported upstream.
    """

    def set_timer(
        self, delay: float, callback: TimerCallback | None = None, *, name: str | None = None, pause: bool = False
    ) -> Timer:
        timer = super().set_timer(delay, callback, name=name, pause=pause)
        # It begins once the caller has returned to the event loop.
        timer._skip = False
        return timer
