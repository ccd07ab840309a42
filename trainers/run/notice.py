"""Notifies once when a run has ended: runs a command and calls a webhook, as the user's settings say.

The settings are copied into the run's directory at launch (`write_notification_config`). At the end the supervisor, or
the reaper if the supervisor was killed, starts this module in its own process (`start_notice`): no dashboard need be
open, and neither a slow server nor a hanging command blocks anything. Whoever removes the copy sends the notice, so
each attempt sends at most one. Errors go to supervisor.log; the webhook's address, which may be a secret, does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec

from tuiapp.trainers.config.settings import host_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import NotificationConfig, take_notification_config
from tuiapp.trainers.run.disk_full_safe_stdio import make_stdio_disk_full_safe
from tuiapp.trainers.state.messages import describe_result
from tuiapp.trainers.state.summary import RunInfo, config_facts, run_facts, summarise

COMMAND_TIMEOUT_S = 60.0
WEBHOOK_TIMEOUT_S, ATTEMPTS = 15.0, 3

ENDED_S = 30.0
"""How long the run's lock may be held after the run's last event."""


def main() -> None:
    """Carries out a run's order, unless another process has."""
    run = RunDir(Path(sys.argv[1]))
    make_stdio_disk_full_safe()
    # Still live: somebody has resumed it meanwhile, and the order is for the end of that attempt.
    order = take_notification_config(run) if run.wait_until_over(ENDED_S) else None
    if order is None:
        return
    info = summarise(run)
    if order.webhook:
        # msgspec writes a non-finite loss as null; JSON has no such number.
        body = msgspec.json.encode({"text": in_a_sentence(info), **facts(info)})
        if problem := _post(order.webhook, body):
            _log(f"the webhook at {host_of(order.webhook)} rejected the notice: {problem}")
    if order.command:
        _call(order, info)


def facts(info: RunInfo) -> dict[str, object]:
    """Facts of a run for the notice; null for what it did not reach."""
    return {
        **run_facts(info.directory, info.status, info.summary),
        "name": info.name or None,
        **config_facts(info.config),
        "host": socket.gethostname(),
        "reason": info.reason,
    }


def in_a_sentence(info: RunInfo) -> str:
    """Describes the end of a run."""
    came_to = f", {result}" if (result := describe_result(info.summary)) else ""
    what = f"{info.name} ({info.directory.run_id})" if info.name else info.directory.run_id
    return f"{what} {info.status}{came_to}: {info.reason}"[:500]


def _environment(info: RunInfo) -> dict[str, str]:
    """Returns the facts as environment variables: TUIAPP_RUN_STATUS and so on; unknown values are empty."""
    values = {**facts(info), "text": in_a_sentence(info)}
    texts = {f"TUIAPP_RUN_{name.upper()}": "" if value is None else str(value) for name, value in values.items()}
    texts["TUIAPP_RUN_ID"] = texts.pop("TUIAPP_RUN_RUN")
    # A NUL ends an environment's entry.
    return {name: text.replace("\0", "") for name, text in texts.items()}


def _call(order: NotificationConfig, info: RunInfo) -> None:
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                order.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **_environment(info)},
                cwd=next(directory for directory in (os.path.expanduser("~"), "/") if os.path.isdir(directory)),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            _log(f"the command {order.command[0]!r} cannot be run: {error}")
            return
        try:
            code = process.wait(COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # With all its children.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _log(f"the command {order.command[0]!r} did not end within {COMMAND_TIMEOUT_S:g} s and was killed")
            return
        if code:
            said.seek(max(0, said.seek(0, os.SEEK_END) - 2000))
            output = said.read().decode(errors="replace").strip()
            _log(f"the command {order.command[0]!r} ended with {code}: {output or 'it said nothing'}")


def _post(url: str, body: bytes) -> str:
    """Posts JSON; retries if the server may have been asleep.

    Returns the error, without the address, which may be a secret; "" on success.
    """
    request = urllib.request.Request(
        url, data=body, method="POST", headers={"Content-Type": "application/json", "User-Agent": "tuiapp"}
    )
    opener = urllib.request.build_opener(_NoRedirect)
    problem = ""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)
        try:
            with opener.open(request, timeout=WEBHOOK_TIMEOUT_S):
                return ""
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code}"
            error.close()
            if error.code < 500:
                break
        except urllib.error.URLError as error:
            problem = str(error.reason)
        except Exception as error:  # http.client and ssl have their own; none may keep the rest from being done.
            problem = type(error).__name__
    return problem


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the other address may be somebody else's."""

    def redirect_request(self, *_: object) -> None:
        return None


def _log(text: str) -> None:
    print(f"notice: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
