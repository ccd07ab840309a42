"""Slurm's own commands: submit a run's job, ask how it stands, cancel it, put it back into the queue."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuiapp.trainers.config.run_config import RunConfig

TIMEOUT_S = 60.0
"""A controller that is busy, or fails over, answers late."""
SAID_LINES = 3
"""Lines quoted from the end of what a failing command says: sbatch names what it refuses in the last but one."""
SIGNAL_S, SIGNAL_SHARE = 120, 4
"""How long before the time limit a run is asked to save, at most one part in four of it, unless the options say so.

Slurm looks every 30 s and may send the signal a minute early: see sbatch(1), `--signal`.
"""
_LIMIT = re.compile(r"(?:(?P<days>\d+)-)?(?P<fields>\d+(?::\d+){0,2})")

GONE = (
    "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "COMPLETED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "PREEMPTED",
)  # fmt: skip
"""States of a job that will not start any more."""
WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")


class SlurmError(Exception):
    """A command of Slurm failed, in its own words."""


@dataclass(frozen=True, slots=True)
class JobState:
    state: str
    """The job's state as Slurm calls it: PENDING, RUNNING …"""
    reason: str = ""
    """Why it waits: Priority, Resources …; "" for none."""
    start: str = ""
    """When Slurm expects to start it, in local time; "" if it does not say."""


def inside_allocation() -> bool:
    """Returns whether this process has an allocation already, as in `salloc`."""
    return "SLURM_JOB_ID" in os.environ


def slurm_job() -> str:
    """Returns the id of the job that this process is part of, of an array with its task, "17_3"; "" for none."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID", ""), os.environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def job_script(config: RunConfig, directory: Path, command: list[str]) -> str:
    """Returns the text of a job that runs a command on the first of its nodes.

    Options of the user's own come last: of two of a kind, Slurm takes the later.
    """
    options = _options(config.slurm)
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name=tuiapp-{directory.name[-4:]}",
            f"#SBATCH --nodes={config.nodes}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --output={directory / 'slurm.log'}",
            "#SBATCH --open-mode=append",
            f"#SBATCH --signal=B:USR1@{_lead_s(options)}",
            f"#SBATCH --{'requeue' if config.requeue else 'no-requeue'}",
            *(f"#SBATCH {option}" for option in options),
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def _options(text: str) -> list[str]:
    """Splits options, each with its value: `-p gpu --time=1:00:00` has two."""
    options: list[str] = []
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if word.startswith("-") or not options:
            options.append(f"{name}={shlex.quote(value)}" if equals else word)
        else:
            options[-1] += f" {shlex.quote(word)}"
    return options


def _lead_s(options: Sequence[str]) -> int:
    """Returns how long before the time limit of a job Slurm is to send the signal."""
    limits = [match[1] for option in options if (match := re.fullmatch(r"(?:--time[= ]|-t ?)(\S+)", option))]
    limit_s = _limit_s(limits[-1]) if limits else None
    # 0 means unlimited.
    return min(SIGNAL_S, max(1, limit_s // SIGNAL_SHARE)) if limit_s else SIGNAL_S


def _limit_s(text: str) -> int | None:
    """Reads a time limit as sbatch(1) does: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None if it is none."""
    if (match := _LIMIT.fullmatch(text)) is None:
        return None
    fields = [int(field) for field in match["fields"].split(":")]
    if match["days"] is not None:
        fields = [24 * int(match["days"]) + fields[0], *fields[1:], 0, 0]
    elif len(fields) < 3:
        fields = [0, *fields, 0]
    return 3600 * fields[0] + 60 * fields[1] + fields[2]


def submit(script: Path) -> str:
    """Submits a job, and returns its id. Raises SlurmError."""
    return _run("sbatch", "--parsable", str(script)).strip().partition(";")[0]


def look_up(job: str) -> JobState:
    """Returns how a job stands: COMPLETED if Slurm knows it no longer. Raises SlurmError if Slurm does not answer."""
    try:
        line = _run("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T|%r|%S").strip()
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return JobState("COMPLETED")
        raise
    if not line:
        return JobState("COMPLETED")
    state, reason, start = [*line.splitlines()[0].split("|"), "", ""][:3]
    absent = ("None", "N/A", "(null)")
    return JobState(state, "" if reason in absent else reason, "" if start in absent else start)


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
        errors = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SlurmError("; ".join(line.rpartition("error: ")[2] for line in errors[-SAID_LINES:]))
    return done.stdout
