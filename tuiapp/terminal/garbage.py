"""Schedules garbage collection so that keys rarely wait for it.

A long journal creates and drops events by the ten thousand, none in a cycle: Python's default collections would take a
third of the time to read it. But each layout leaves ten thousand objects behind, many in cycles, and a key waits for
a collection in any thread: a few milliseconds for 5,000 new objects, ten times as long for 50,000.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 5_000
"""New objects that trigger a collection."""

REST_S = 2.0
"""After so long without a key nobody waits for an answer."""

OLDER_COLLECTIONS = 10
"""Collections of younger objects after which the oldest generation is due."""


def collect_from_now_on() -> None:
    """Starts collecting; present objects are exempt."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, 100)
    gc.enable()


def collect_at_rest(rest_s: float) -> None:
    """Runs a due full collection, tens of milliseconds, at rest; `rest_s`: seconds since the last key."""
    if rest_s > REST_S and gc.get_count()[2] >= OLDER_COLLECTIONS:
        gc.collect()


def freeze_gc(*, may_be_gone: bool) -> None:
    """Exempts a screen's objects from garbage collection.

    Modules, stylesheets and widgets stay: scanning them all takes 50 ms, between two keys, whenever the oldest
    generation is due. With `may_be_gone`, first collects what a closed screen left behind.
    """
    if may_be_gone:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
