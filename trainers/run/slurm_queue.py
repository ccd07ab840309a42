"""Watches a run's Slurm job: `python -m tuiapp.trainers.run.slurm_queue RUN_DIR JOB LOCK_FD`.

While the job waits this holds the run's lock, writes why the job waits into the journal, and takes a stop. When the job
begins it asks for the lock, and its supervisor takes over; when Slurm puts the job back into the queue, this waits
again. It ends with the job. If it dies, the run stays queued, the job starts it all the same, and the next view of the
run starts this again.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from tuiapp.trainers.config import slurm
from tuiapp.trainers.config.files import write_atomically
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import Alert, Event, Queued, RunEnded, Status
from tuiapp.trainers.contract.lock import BEAT_S, Liveness, LockNote, beat, write_note
from tuiapp.trainers.contract.process_identity import identity, machine
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import start_notice
from tuiapp.trainers.run import disk_full_safe_stdio
from tuiapp.trainers.state.status import append_event, known, last_attempt
from tuiapp.trainers.state.summary import is_final, summarise

LOOK_S, LOOK_MOST_S = 3.0, 30.0
"""Time between two questions to Slurm: longer, the longer the job waits."""
START_EVERY_S = 300.0
"""Time between two lines in the journal that differ only in when Slurm expects to start the job."""
POLL_S = 0.2
ENDING_S = 1.0
"""Time between two questions to Slurm about a job whose supervisor has ended."""


class Queue:
    """Holds the run's lock while its Slurm job waits, and leaves it to the supervisor while the job runs."""

    def __init__(self, run: RunDir, job: str, lock: int) -> None:
        self._run, self._job, self._lock = run, job, lock
        self._trouble = ""
        self.stopping = False

    def watch(self) -> None:
        """Watches the job until it has ended."""
        while self._wait() and self._train():
            pass

    def _wait(self) -> bool:
        """Waits with the lock until the job begins; False if it never will."""
        began = look_at = beat_at = written = monotonic()
        reported = slurm.JobState("")
        with suppress(OSError):
            write_atomically(self._run.queued, self._job.encode())
        self._note(machine())
        while not os.path.exists(self._run.handover):
            wants_stop = any(command in ("stop", "stop-now") for command in sidecars.take_commands(self._run.commands))
            if (wants_stop or self.stopping or self._run.is_gone()) and self._cancel():
                return False
            now = monotonic()
            if now >= beat_at:
                beat_at = now + BEAT_S
                beat(self._lock)
            if now >= look_at and (job := self._query_job()):
                if job.state in slurm.GONE:
                    self._end_waiting(job.state)
                    return False
                same = (job.state, job.reason) == (reported.state, reported.reason)
                if job.state in slurm.WAITING and job != reported and (not same or now - written > START_EVERY_S):
                    reported, written = job, now
                    self._write(Queued(job=self._job, reason=job.reason, start=job.start))
            if now >= look_at:
                look_at = now + min(LOOK_MOST_S, LOOK_S + 0.05 * (now - began))
            sleep(POLL_S)
        self._report_trouble("")
        os.close(self._lock)
        return True

    def _train(self) -> bool:
        """Waits without the lock until the job is back in the queue; False if it has ended."""
        while True:
            sleep(POLL_S if os.path.exists(self._run.handover) else ENDING_S)
            if self._run.liveness() is Liveness.HELD:
                continue
            if not os.path.exists(self._run.handover) and is_final(self._run):
                return False
            # Nothing is written: the next attempt's supervisor may be about to.
            with suppress(slurm.SlurmError, OSError):
                state = slurm.look_up(self._job).state
                if state not in (*slurm.GONE, *slurm.WAITING):
                    continue
                self._lock = self._run.take_lock()
                self._run.handover.unlink(missing_ok=True)
                if state in slurm.WAITING:
                    return True
                status = known(self._run).status
                if status.queued or os.path.exists(self._run.queued):
                    self._end_waiting(state)
                elif status.end is None:
                    self._end("failed", f"its supervisor died with its Slurm job {self._job}: {state}; see slurm.log")
                    self._let_go()
                return False

    def _query_job(self) -> slurm.JobState | None:
        try:
            job = slurm.look_up(self._job)
        except slurm.SlurmError as error:
            self._report_trouble(f"Slurm does not answer: {error}; the job is not affected")
            return None
        self._report_trouble("")
        return job

    def _report_trouble(self, trouble: str) -> None:
        """Writes that Slurm does not answer, or answers again, once."""
        if trouble and not self._trouble:
            self._write(Alert(kind="slurm", text=trouble))
        elif self._trouble and not trouble:
            self._write(Alert(kind="slurm", severity="info", text="Slurm answers again", ended=True))
        self._trouble = trouble

    def _cancel(self) -> bool:
        self.stopping = False
        try:
            slurm.cancel(self._job)
        except slurm.SlurmError as error:
            self._write(Alert(kind="slurm", severity="error", text=f"job {self._job} cannot be cancelled: {error}"))
            return self._run.is_gone()
        self._end_waiting("CANCELLED")
        return True

    def _end_waiting(self, state: str) -> None:
        again = " again" if last_attempt(self._run) else ""
        if state == "CANCELLED":
            self._end("stopped", f"its Slurm job {self._job} was cancelled before it started{again}")
        else:
            self._end("failed", f"its Slurm job {self._job} ended before it started{again}: {state}; see slurm.log")
        self._let_go()

    def _let_go(self) -> None:
        """Lets the run go that has ended, after its last event."""
        with suppress(OSError):
            self._run.queued.unlink(missing_ok=True)
        self._note("")
        os.close(self._lock)

    def _note(self, where: str) -> None:
        attempt, process = last_attempt(self._run), identity(os.getpid())
        write_note(self._lock, LockNote(attempt=attempt, supervisor=process, machine=where, host=socket.gethostname()))

    def _end(self, status: Status, reason: str) -> None:
        self._write(RunEnded(status=status, reason=reason, summary=summarise(self._run).summary))

    def _write(self, event: Event) -> None:
        with suppress(OSError):
            append_event(self._run, event)


def main() -> None:
    """Watches with the run's lock."""
    run, job, lock = RunDir(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    disk_full_safe_stdio.make_stdio_disk_full_safe()
    held = run.take_job()
    queue = Queue(run, job, lock)
    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, lambda *_: setattr(queue, "stopping", True))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    queue.watch()
    os.close(held)
    start_notice(run)


if __name__ == "__main__":
    main()
