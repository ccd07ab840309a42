"""Has a queued run's Slurm job watched again, if the process that did is gone."""

from __future__ import annotations

from trainers.contract.rundir import RunDir


def keep_watched(run: RunDir) -> None:
    """Looks whether a process watches a queued run's job, and starts it where there is none; never waits for Slurm."""
    if run.queued_job() and not run.is_watched():
        # Imported by few views otherwise.
        from trainers.launch import watch_queue

        watch_queue(run)
