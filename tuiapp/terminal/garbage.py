"""When garbage is collected: a key never waits for it if that can be helped.

A long journal makes and drops events by the ten thousand, none of them in a cycle: looking for cycles as often as
Python does by itself would take a third of the time in which they are read. But each layout of the screen leaves ten
thousand objects behind, many of them in cycles, and a key waits for whoever collects them, in whatever thread: a few
milliseconds for 5,000 new objects, ten times as long for 50,000.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 5_000
"""So many more than there were, and they are looked through."""

NEW_WHILE_ANSWERING = 100_000
"""The same while a key is answered: some ten of them, should somebody hold one down."""

REST_S = 2.0
"""Without a key for so long nobody waits for an answer."""

OLDER_COLLECTIONS = 10
"""After so many collections of what is not new there may be much that is old."""


def collect_from_now_on() -> None:
    """Begin to collect garbage, which nothing that is there by now is."""
    gc.freeze()
    put_off(answering=False)
    gc.enable()


def put_off(*, answering: bool) -> None:
    """Look through new objects late while a key is answered, and soon once it has been."""
    gc.set_threshold(NEW_WHILE_ANSWERING if answering else NEW_OBJECTS, 10, 100)


def collect_at_rest(rest_s: float) -> None:
    """Collect what has outlived two collections while nobody waits for an answer: that takes tens of milliseconds.

    Args:
        rest_s: For how long no key was pressed.
    """
    if rest_s > REST_S and gc.get_count()[2] >= OLDER_COLLECTIONS:
        gc.collect()


def freeze_gc(*, may_be_gone: bool) -> None:
    """Let the garbage collector pass over what a screen came with.

    Modules, stylesheets and widgets are there to stay; to look through them all takes 50 ms, between two keys, whenever
    the collector's third generation is due. What a screen that is gone left behind is collected here.

    Args:
        may_be_gone: Whether there can be such a one; before the first the time is wanted for reading.
    """
    if may_be_gone:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
