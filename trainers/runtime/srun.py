"""Starts the agents of a run's other nodes in its own Slurm job."""

from __future__ import annotations

import os
import subprocess
import sys

from trainers.contract.rundir import RunDir


def start_agents(run: RunDir, count: int) -> subprocess.Popen[bytes]:
    """Starts one on each node but this; each reads address and secret from the run's directory. Raises OSError."""
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
        return subprocess.Popen(
            [*command, sys.executable, "-P", "-m", "trainers.runtime.node", str(run.path)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
