"""Stands for a run whose Slurm job waits: `python -m trainers.runtime.slurm_queue RUN_DIR JOB LOCK_FD`.

It holds the run's lock, so that the run counts as live, writes why the job waits into the journal, and takes a stop.
Once the job runs it lets go, and the supervisor on the job's first node takes over. If it dies, the job starts the run
all the same.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from time import monotonic, sleep

import msgspec

from trainers.config import slurm
from trainers.contract import mailbox
from trainers.contract.events import Alert, Event, Queued, RunEnded, Summary
from trainers.contract.journal import JournalWriter
from trainers.contract.lock_note import LockNote, write_note
from trainers.contract.process_identity import identity, machine
from trainers.contract.rundir import RunDir, beat
from trainers.runtime import disk_full_safe_stdio, notice

LOOK_S = 3.0
POLL_S = 0.2


class Queue:
    def __init__(self, run: RunDir, job: str, lock: int) -> None:
        self._run, self._job, self._lock = run, job, lock
        self._note = LockNote(supervisor=identity(os.getpid()), machine=machine(), host=socket.gethostname())
        write_note(lock, self._note)
        self._journal = JournalWriter(run.journal)
        self._seen: slurm.Job | None = None
        self._trouble = ""
        self.stopping = False

    def wait(self) -> bool:
        """Waits until the job runs; False if it never will."""
        look_at = 0.0
        while True:
            if self.stopping or mailbox_stops(self._run) or self._run.is_gone():
                return self._cancel()
            if monotonic() >= look_at:
                look_at = monotonic() + LOOK_S
                beat(self._lock)
                if (started := self._look()) is not None:
                    return started
            sleep(POLL_S)

    def _look(self) -> bool | None:
        try:
            job = slurm.look_up(self._job)
        except slurm.SlurmError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._write(Alert(kind="slurm", text=f"Slurm does not answer: {error}; the job is not affected"))
            return None
        self._trouble = ""
        if job.state in slurm.GONE:
            self._end("failed", f"its Slurm job {self._job} ended before it started: {job.state}")
            return False
        if job.state != "PENDING":
            return True
        if job != self._seen:
            self._seen = job
            self._write(Queued(job=self._job, reason=job.reason, start=job.start))
        return None

    def _cancel(self) -> bool:
        try:
            slurm.cancel(self._job)
        except slurm.SlurmError as error:
            self._write(Alert(kind="slurm", severity="error", text=f"job {self._job} cannot be cancelled: {error}"))
            self.stopping = False
            return self.wait()
        self._end("stopped", f"its Slurm job {self._job} was cancelled before it started")
        return False

    def _end(self, status: str, reason: str) -> None:
        self._write(RunEnded(status="stopped" if status == "stopped" else "failed", reason=reason, summary=Summary()))

    def _write(self, event: Event) -> None:
        self._journal.append([event], durable=True)

    def close(self) -> None:
        self._journal.close()
        write_note(self._lock, msgspec.structs.replace(self._note, machine=""))


def mailbox_stops(run: RunDir) -> bool:
    """Whether somebody asks the run to stop; there is nothing to save yet."""
    return any(command != "checkpoint" for command in mailbox.take(run.commands))


def main() -> None:
    """Waits with the run's lock."""
    run, job, lock = RunDir(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    disk_full_safe_stdio.make_stdio_disk_full_safe()
    queue = Queue(run, job, lock)
    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, lambda *_: setattr(queue, "stopping", True))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    started = queue.wait()
    queue.close()
    if started:
        run.handover.touch()
    os.close(lock)
    if not started:
        notice.start(run)


if __name__ == "__main__":
    main()
