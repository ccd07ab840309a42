"""A run's Slurm job, on the first of its nodes: `python -m tuiapp.trainers.launch.slurm_job RUN_DIR`.

It starts the run's supervisor here, or resumes the run if the job was requeued. Slurm's signals become the run's:
SIGTERM (scancel, preemption) and SIGUSR1 (the time limit is near) save a checkpoint and stop. A run with `requeue` that
Slurm stopped, or that lost a node, goes back into the queue, unless its job was cancelled, and continues in the same
directory from its last checkpoint, or anew if it has none. One whose own code failed does not.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from time import monotonic, sleep

from tuiapp.trainers.config import slurm
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import write_atomically
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.lock import Liveness
from tuiapp.trainers.contract.manifest import list_checkpoints
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch import LaunchError, resume, start
from tuiapp.trainers.state.status import known, last_attempt, read_config
from tuiapp.trainers.state.summary import is_final

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
            sidecars.send_command(self._run.commands, "time-limit" if number == signal.SIGUSR1 else "job-ends")

    def run(self) -> int:
        """Runs it to its end; returns the job's exit code."""
        try:
            lock = self._take_lock()
            try:
                self._run.queued.unlink(missing_ok=True)
                if last_attempt(self._run):
                    # Commands to an attempt that ended before it read them are not for this one.
                    sidecars.take_commands(self._run.commands)
                if last_attempt(self._run) and has_begun(self._run):
                    for note in resume(self._run, lock=lock).notes:
                        print(note, file=sys.stderr)
                else:
                    start(self._run, lock)
            finally:
                os.close(lock)
        except (LaunchError, ConfigError, OSError) as error:
            print(f"tuiapp: {error}", file=sys.stderr)
            return 1
        while self._run.liveness() is Liveness.HELD:
            sleep(POLL_S)
        end = known(self._run).status.end
        if end is None:
            return 1
        if (end.status == "stopped" or end.node_lost) and not is_final(self._run):
            self._requeue()
        return EXIT_CODES.get(end.status, 1)

    def _take_lock(self) -> int:
        """Asks the process that waited in the queue for the run's lock."""
        deadline = monotonic() + HANDOVER_S
        while True:
            self._run.handover.touch(mode=0o600)
            try:
                return self._run.take_lock()
            except BlockingIOError:
                if monotonic() > deadline:
                    raise

    def _requeue(self) -> None:
        """Puts the job back into the queue, unless Slurm ends it: it is cancelled then, or goes back by itself."""
        job = os.environ["SLURM_JOB_ID"]
        # Slurm ends this process, too.
        self._stopped = True
        try:
            if slurm.look_up(job).state == "RUNNING":
                write_atomically(self._run.queued, job.encode())
                slurm.requeue(job)
        except (slurm.SlurmError, OSError) as error:
            self._run.queued.unlink(missing_ok=True)
            print(f"tuiapp: job {job} is not requeued: {error}", file=sys.stderr)


def has_begun(run: RunDir) -> bool:
    """Returns whether a run has anything to resume from; a script looks by itself."""
    return not BACKENDS[read_config(run).backend].builtin or any(list_checkpoints(run.checkpoints))


if __name__ == "__main__":
    sys.exit(Job(RunDir(Path(sys.argv[1]))).run())
