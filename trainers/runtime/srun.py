"""Starts the agents of a run's other nodes in its own Slurm job."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from trainers.contract.rundir import RunDir

FINISH_S = 2.0


class SrunAgents:
    """One on each node but this; each reads address and secret from the run's directory. Raises OSError."""

    def __init__(self, run: RunDir, count: int) -> None:
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
            command.append(f"--gpus-per-node={gpus}")
        with run.supervisor_log.open("ab") as file:
            self._srun = subprocess.Popen(
                [*command, sys.executable, "-P", "-m", "trainers.runtime.node", str(run.path)],
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
