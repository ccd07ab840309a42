"""`tuiapp join`: this machine becomes a node of a run that another has launched."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from getpass import getpass
from typing import NoReturn

from tuiapp.trainers.contract.rundir import SECRET_VARIABLE
from tuiapp.verbs.facts import UsageError

AGENT = (sys.executable, "-P", "-m", "tuiapp.trainers.run.node")


def join_run(options: Namespace) -> NoReturn:
    """Serves the run until it ends."""
    host, _, port = options.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{options.address!r} is not an address; type HOST:PORT, as the run's log gives it.")
    if options.node < 0:
        raise UsageError(f"{options.node} is no node; the others are counted from 1, and 0 is the first that is free.")
    command = [*AGENT, options.address, str(options.node)]
    if options.secret_file is None:
        secret = getpass("secret of the run: ") if sys.stdin.isatty() else sys.stdin.readline()
        _serve(dict(os.environ), command, secret.strip())
    if not os.path.isfile(options.secret_file):
        raise UsageError(f"There is no file {options.secret_file!r}; it is `secret` in the run's directory.")
    _serve({**os.environ, SECRET_VARIABLE: options.secret_file}, command, "")


def _serve(environment: dict[str, str], command: list[str], secret: str) -> NoReturn:
    """Becomes the agent, whose standard input has the secret: signals and the terminal's keys are its own."""
    read, write = os.pipe()
    os.write(write, secret.encode() + b"\n")
    os.close(write)
    os.dup2(read, 0)
    os.execve(command[0], command, environment)
