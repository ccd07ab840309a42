"""Ends a run's processes once its supervisor is gone: `python -m tuiapp.trainers.run.reaper PID TOKEN [RUN_DIR]`.

Watches the supervisor by pidfd from its own process and session, so that it outlives whatever kills the supervisor.
After an orderly end it finds nothing to kill. Given the run's directory, it sends the user's notice in any case.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from tuiapp.trainers.contract.orphans import kill_tagged
from tuiapp.trainers.run.disk_full_safe_stdio import make_stdio_disk_full_safe


def main() -> None:
    """Waits for the supervisor's end, then kills all processes with the run's token."""
    # Slurm sends it to every process of a job that it ends; this one ends with the run.
    signal.signal(signal.SIGTERM, lambda *_: None)
    supervisor, token = int(sys.argv[1]), sys.argv[2]
    # Its output goes to supervisor.log, whose disk may be full.
    make_stdio_disk_full_safe()
    try:
        fd = os.pidfd_open(supervisor)
    except OSError:
        fd = None
    # If the parent is another process by now, the supervisor died before it could be watched.
    if fd is not None and os.getppid() == supervisor:
        select.select([fd], [], [])
    for pid in kill_tagged(token):
        print(f"reaper: killed process {pid}, left behind by supervisor {supervisor}", file=sys.stderr)
    if len(sys.argv) > 3:
        # 8 MB that it does not hold while the run trains.
        from tuiapp.trainers.contract.rundir import RunDir
        from tuiapp.trainers.contract.sidecars import start_notice

        start_notice(RunDir(Path(sys.argv[3])))


if __name__ == "__main__":
    main()
