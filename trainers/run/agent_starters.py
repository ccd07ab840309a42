"""Starts the agents of a run's other nodes: by OpenSSH, as the user has configured it, or in the run's own Slurm job.

Over ssh each gets the run's secret by its stdin, and tuiapp has to be installed on every host at the same path. A node
that does not share the runs directory keeps its ranks' files after the run; nothing else of ours stays.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuiapp.trainers.config.files import open_own, read_end
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.node_wire import VERSION

OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
"""No question on a terminal that is not there; a host that is gone is noticed."""
SSH_FAILED = 255
"""ssh's own exit code; any other is that of the command."""
MAX_SAID_BYTES = 4000


class SshAgent:
    """The agent on a host, that of a node; what it and ssh say goes into `log`. Raises OSError without ssh."""

    def __init__(self, host: str, address: str, secret: str, log: Path, node: int) -> None:
        self._host, self._log = host, log
        command = shlex.join([sys.executable, "-P", "-m", "tuiapp.trainers.run.node", address, str(node)])
        with open_own(log, "wb") as file:
            self._ssh = subprocess.Popen(
                ["ssh", *OPTIONS, host, f"exec {command}"], stdin=subprocess.PIPE, stdout=file, stderr=file
            )
        assert self._ssh.stdin is not None
        try:
            self._ssh.stdin.write(secret.encode() + b"\n")
            self._ssh.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already, and says why

    def refusal(self) -> str:
        """Why it has ended, and what to do about it; "" while it runs."""
        code = self._ssh.poll()
        if not code:
            return ""
        lines = read_end(self._log, 0, MAX_SAID_BYTES).split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")
        if code == SSH_FAILED:
            cure = f"; `ssh -o BatchMode=yes {self._host} true` must work on this machine"
        elif last.startswith("tuiapp: "):
            last, cure = last.removeprefix("tuiapp: "), ""
        else:
            cure = f"; tuiapp {VERSION} must be installed there for {sys.executable}"
        return f"the agent on {self._host} could not be started: {last}{cure}; see {self._log.name}"

    def end(self) -> None:
        self._ssh.terminate()
        self._ssh.wait()


FINISH_S = 2.0


class SrunAgents:
    """One on each node but this, the first of those that have so many `devices`.

    Each reads address and secret from the run's directory. Raises OSError.
    """

    def __init__(self, run: RunDir, devices: Sequence[int]) -> None:
        count = len(devices) - 1
        command = [
            "srun",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
            f"--exclude={os.environ['SLURMD_NODENAME']}",
            "--kill-on-bad-exit=1",
        ]
        environment = dict(os.environ)
        if environment.pop("SLURM_GPUS", None) and (gpus := environment.get("SLURM_GPUS_ON_NODE")):
            # `--gpus` counts those of all nodes, and srun would ask as many of these.
            equal = len(set(devices)) == 1
            command.append(f"--gpus-per-node={gpus}" if equal else f"--gpus={sum(devices[1:])}")
        with open_own(run.supervisor_log, "ab") as file:
            self._srun = subprocess.Popen(
                [*command, sys.executable, "-P", "-m", "tuiapp.trainers.run.node", str(run.path)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def refusal(self) -> str:
        """Why it has ended; "" while it runs."""
        code = self._srun.poll()
        return f"the agents could not be started by srun (exit code {code}); see supervisor.log" if code else ""

    def end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._srun.wait(FINISH_S)
        self._srun.kill()
        self._srun.wait()
