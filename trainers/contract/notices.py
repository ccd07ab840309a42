"""What to do when a run has ended, as kept in its directory until then."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import msgspec

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.files import read_limited, write_atomically
from tuiapp.trainers.config.settings import MAX_FILE_BYTES, Settings
from tuiapp.trainers.contract.rundir import RunDir


class NotificationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Copied from the settings at launch: later changes are for later runs."""

    command: tuple[str, ...] = ()
    """A program and its arguments; empty for none."""
    webhook: str = ""
    """Where to post the run's facts; "" for nowhere. May be a secret: only the user may read the file."""


def write_notification_config(run: RunDir, settings: Settings) -> None:
    """Writes the order for a run's end, or removes it if the settings have none; raises OSError."""
    order = NotificationConfig(command=settings.command, webhook=settings.webhook)
    if order == NotificationConfig():
        run.notice.unlink(missing_ok=True)
    else:
        write_atomically(run.notice, msgspec.json.encode(order))


def take_notification_config(run: RunDir) -> NotificationConfig | None:
    """Removes and returns the order, so that nobody else carries it out too; None if there is none."""
    try:
        order = msgspec.json.decode(read_limited(run.notice, MAX_FILE_BYTES), type=NotificationConfig)
    except (OSError, ValueError, RecursionError):
        order = None
    # Of several that have read it, one succeeds.
    with contextlib.suppress(OSError):
        run.notice.unlink()
        return order
    return None


def start_notice(run: RunDir) -> None:
    """Starts the notice of a run's end, if the user wants one; returns at once and never raises."""
    if not os.path.exists(run.notice):
        return
    try:
        # Its output goes where this process's output goes: to supervisor.log.
        subprocess.Popen(
            module("tuiapp.trainers.run.notice", str(run.path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        print(f"notice: cannot be sent: {error}", file=sys.stderr, flush=True)
