"""A run's Slurm job, on the first of its nodes: `python -m trainers.slurm_job RUN_DIR`.

It starts the run's supervisor here, or resumes the run if the job was requeued. Slurm's signals become the run's:
SIGTERM (scancel, preemption) and SIGUSR1 (the time limit is near) save a checkpoint and stop. A run with `requeue` that
Slurm stopped goes back into the queue, unless its job was cancelled, and continues in the same directory.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from time import monotonic, sleep

from trainers.config import slurm
from trainers.config.options import ConfigError
from trainers.contract import mailbox
from trainers.contract.events import RunEnded
from trainers.contract.peek import peek_journal
from trainers.contract.rundir import RunDir
from trainers.contract.summary import is_final, last_attempt
from trainers.launch import LaunchError, resume, start

HANDOVER_S = 60.0
"""Time for the process that waited in the queue to let go of the run."""
POLL_S = 0.1
EXIT_CODES = {"completed": 0, "stopped": 3}


class Job:
    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._stopped = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        if not self._stopped:
            self._stopped = True
            mailbox.send(self._run.commands, "time-limit" if number == signal.SIGUSR1 else "job-ends")

    def run(self) -> int:
        """Runs it to its end; returns the job's exit code."""
        try:
            lock = self._take_lock()
            try:
                self._run.queued.unlink(missing_ok=True)
                if last_attempt(self._run):
                    for note in resume(self._run, lock=lock).notes:
                        print(note, file=sys.stderr)
                else:
                    start(self._run, lock)
            finally:
                os.close(lock)
        except (LaunchError, ConfigError, OSError) as error:
            print(f"tuiapp: {error}", file=sys.stderr)
            return 1
        while self._run.is_supervised():
            sleep(POLL_S)
        end = peek_journal(self._run.journal).last
        status = end.status if isinstance(end, RunEnded) else "lost"
        if status == "stopped" and not is_final(self._run):
            self._requeue()
        return EXIT_CODES.get(status, 1)

    def _take_lock(self) -> int:
        """Asks the process that waited in the queue for the run's lock."""
        deadline = monotonic() + HANDOVER_S
        while True:
            self._run.handover.touch()
            try:
                return self._run.take_lock()
            except BlockingIOError:
                if monotonic() > deadline:
                    raise

    def _requeue(self) -> None:
        """Puts the job back into the queue, unless Slurm ends it: it is cancelled then, or goes back by itself."""
        job = os.environ["SLURM_JOB_ID"]
        try:
            if slurm.look_up(job).state == "RUNNING":
                slurm.requeue(job)
        except slurm.SlurmError as error:
            print(f"tuiapp: job {job} is not requeued: {error}", file=sys.stderr)


def main() -> int:
    """Runs the job of one run."""
    return Job(RunDir(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    sys.exit(main())
