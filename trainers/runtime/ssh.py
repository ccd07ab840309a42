"""Starts the agents of a run's other nodes by OpenSSH, as the user has configured it.

Each gets the run's secret by its stdin. With `launcher = "ssh"` tuiapp has to be installed on every host at the same
path; nothing of ours stays there after the run.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
"""No question on a terminal that is not there; a host that is gone is noticed."""


def start_agent(host: str, address: str, secret: str, log: Path) -> subprocess.Popen[bytes]:
    """Starts the agent on a host; what it and ssh say goes into `log`. Raises OSError."""
    command = shlex.join([sys.executable, "-P", "-m", "trainers.runtime.node", address])
    with log.open("ab") as file:
        started = subprocess.Popen(
            ["ssh", *OPTIONS, host, f"exec {command}"], stdin=subprocess.PIPE, stdout=file, stderr=file
        )
    assert started.stdin is not None
    try:
        started.stdin.write(secret.encode() + b"\n")
        started.stdin.close()
    except BrokenPipeError:
        pass  # it has ended already, and said why
    return started
