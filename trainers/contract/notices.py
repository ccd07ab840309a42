"""What is to be done when a run has ended, as it lies in the run's directory until then."""

from __future__ import annotations

import contextlib

import msgspec

from trainers.config.files import read_limited, write_atomically
from trainers.config.settings import MAX_FILE_BYTES, Settings
from trainers.contract.rundir import RunDir


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants done, copied from the settings at the launch: later changes are for later runs."""

    command: tuple[str, ...] = ()
    """A program and its arguments; empty for none."""
    webhook: str = ""
    """Where to post the run's facts; "" for nowhere. May be a secret: the file is for the user's eyes only."""


def leave_order(run: RunDir, settings: Settings) -> None:
    """Write into a run's directory what is to be done at its end, or that nothing is.

    Raises:
        OSError: it cannot be written.
    """
    order = Order(command=settings.command, webhook=settings.webhook)
    if order == Order():
        run.notice.unlink(missing_ok=True)
    else:
        write_atomically(run.notice, msgspec.json.encode(order))


def take_order(run: RunDir) -> Order | None:
    """What is to be done, taken away so that nobody else does it too; None when there is nothing, or no more."""
    try:
        order = msgspec.json.decode(read_limited(run.notice, MAX_FILE_BYTES), type=Order)
    except (OSError, ValueError):
        order = None
    # Of several that have read it, one succeeds.
    with contextlib.suppress(OSError):
        run.notice.unlink()
        return order
    return None
