"""Slurm's own commands: submit a run's job, ask how it stands, cancel it, put it back into the queue."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trainers.config.run_config import RunConfig

TIMEOUT_S = 60.0
"""A controller that is busy, or fails over, answers late."""
SAID_LINES = 3
"""Of a command that fails, quoted from the end: sbatch names what it refuses in the line before the last."""
SIGNAL_S = 120
"""How long before the time limit a run is asked to save, unless the user's options say so."""

GONE = (
    "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "COMPLETED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "PREEMPTED",
)  # fmt: skip
"""States of a job that will not start any more."""
WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")


class SlurmError(Exception):
    """A command of Slurm failed, in its own words."""


@dataclass(frozen=True, slots=True)
class Job:
    state: str
    """As Slurm calls it: PENDING, RUNNING …"""
    reason: str = ""
    """Why it waits: Priority, Resources …; "" for none."""
    start: str = ""
    """When Slurm expects to start it, in local time; "" if it does not say."""


def inside_allocation() -> bool:
    """Whether this process has an allocation already, as in `salloc`."""
    return "SLURM_JOB_ID" in os.environ


def job_script(config: RunConfig, directory: Path, command: list[str]) -> str:
    """The text of a job that runs a command on the first of its nodes.

    Options of the user's own come last: of two of a kind, Slurm takes the later.
    """
    own = [f"#SBATCH {option}" for option in _options(config.slurm)]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name=tuiapp-{directory.name[-4:]}",
            f"#SBATCH --nodes={config.nodes}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --output={directory / 'slurm.log'}",
            "#SBATCH --open-mode=append",
            f"#SBATCH --signal=B:USR1@{SIGNAL_S}",
            f"#SBATCH --{'requeue' if config.requeue else 'no-requeue'}",
            *own,
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def _options(text: str) -> list[str]:
    """Options, each with its value: `-p gpu --time=1:00:00` has two."""
    options: list[str] = []
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if word.startswith("-") or not options:
            options.append(f"{name}={shlex.quote(value)}" if equals else word)
        else:
            options[-1] += f" {shlex.quote(word)}"
    return options


def submit(script: Path) -> str:
    """Submits a job, and returns its id. Raises SlurmError."""
    return _run("sbatch", "--parsable", str(script)).strip().partition(";")[0]


def look_up(job: str) -> Job:
    """How a job stands; one that Slurm no longer knows is COMPLETED. Raises SlurmError if Slurm does not answer."""
    try:
        line = _run("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T|%r|%S").strip()
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return Job("COMPLETED")
        raise
    if not line:
        return Job("COMPLETED")
    state, reason, start = [*line.splitlines()[0].split("|"), "", ""][:3]
    absent = ("None", "N/A", "(null)")
    return Job(state, "" if reason in absent else reason, "" if start in absent else start)


def cancel(job: str) -> None:
    """Cancels a job. Raises SlurmError."""
    _run("scancel", job)


def requeue(job: str) -> None:
    """Puts the present job back into the queue. Raises SlurmError."""
    _run("scontrol", "requeue", job)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise SlurmError(f"{command[0]} is not on this machine: launch from one that has Slurm's commands") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SlurmError("; ".join(line.rpartition("error: ")[2] for line in said[-SAID_LINES:]))
    return done.stdout
