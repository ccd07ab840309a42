"""`tuiapp join`: this machine becomes a node of a run that another has launched."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from getpass import getpass
from pathlib import Path

from trainers.contract.rundir import SECRET_VARIABLE
from tuiapp.verbs.facts import UsageError

AGENT = (sys.executable, "-P", "-m", "trainers.runtime.node")


def join_run(options: Namespace) -> int:
    """Serves the run until it ends."""
    host, _, port = options.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{options.address!r} is not an address; type HOST:PORT, as the run's log gives it.")
    command = [*AGENT, options.address]
    if options.secret_file is None:
        secret = getpass("secret of the run: ") if sys.stdin.isatty() else sys.stdin.readline()
        return _serve(command, dict(os.environ), secret.strip())
    if not Path(options.secret_file).is_file():
        raise UsageError(f"There is no file {options.secret_file!r}; it is `secret` in the run's directory.")
    return _serve(command, {**os.environ, SECRET_VARIABLE: options.secret_file}, "")


def _serve(command: list[str], environment: dict[str, str], secret: str) -> int:
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True)
    assert agent.stdin is not None
    agent.stdin.write(secret + "\n")
    agent.stdin.close()
    while True:
        try:
            return agent.wait()
        except KeyboardInterrupt:
            # The agent has got it too, and ends this node's ranks.
            continue
