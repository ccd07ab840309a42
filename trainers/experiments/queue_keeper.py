"""The queue's keeper: `python -m tuiapp.trainers.experiments.queue_keeper RUNS_DIR`, one for each directory of runs.

It holds the queue's lock, starts the next run when its devices are free, and ends when nothing waits. All that it knows
is in the runs' directories: another one goes on where it was killed. A run that has started needs it no more.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.files import is_full, read_end, write_atomically
from tuiapp.trainers.config.gpu_choice import Use, use_of
from tuiapp.trainers.config.machine import VISIBLE, Gpu
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.settings import current_settings
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.gpu_leases import leases
from tuiapp.trainers.contract.lock import is_held
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import UNREAD, Entry, Waiting, find_kept, find_waiting, note_started, remove
from tuiapp.trainers.experiments import daemon
from tuiapp.trainers.experiments.holders import cpu_slots, held_by, live_runs
from tuiapp.trainers.experiments.pace import Kind, kind, seconds
from tuiapp.trainers.experiments.placing import Facts, HeldDevices, Start, decide, forecast
from tuiapp.trainers.experiments.queue import Outlook, QueueFiles, has_work, is_transient, mark_waiting
from tuiapp.trainers.experiments.sweep import end_run, keep_searches
from tuiapp.trainers.launch.processes import start_process
from tuiapp.trainers.launch.queued import DISK_IS_FULL, end, has_started
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import RunInfo, remaining_s, summarise
from tuiapp.trainers.telemetry.gpu_watch import GpuWatch

TICK_S = 0.25
"""Seconds between two looks at the wake file."""
LOOK_S = 1.0
"""Seconds between two looks at the live runs."""
SCAN_S = 30.0
"""Seconds between two looks at all runs, if nothing tells of a change."""
GPUS_S = 2.0
"""Seconds between two questions to the driver, while a run waits for GPUs that no run of ours has."""
TELL_S = 5.0
"""Seconds between two outlooks that differ only in when runs are expected to start."""
BACKOFF_S = 10.0
"""Seconds until a failed run is tried again; twice as many each time."""
LATER_S = 10.0
"""Seconds until a run is tried again that could neither start nor be ended, as on a full disk."""
SETTLE_S = 40.0
"""Seconds that what a killed keeper had just started has to settle."""
LAST_BYTES = 2000
"""Bytes quoted of what a process said that could not become a supervisor."""


class _Started(NamedTuple):
    """A run that has a process, and is not known to train yet."""

    start: Start
    since: str
    """Time of day."""
    process: subprocess.Popen[bytes]
    said_before: int
    """How long its log was."""


class Keeper:
    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._files = QueueFiles(runs_dir)
        self._queue: list[Entry] = []
        self._kept: dict[str, Entry] = {}
        self._live: dict[str, HeldDevices] = {}
        self._starting: dict[str, _Started] = {}
        self._supervisors: list[subprocess.Popen[bytes]] = []
        """Processes of this one that train: they are reaped."""
        self._later: dict[str, tuple[float, str]] = {}
        """Run that could neither start nor be ended → when to try it again, and why not now."""
        self._gpus = GpuWatch()
        self._seen: tuple[int, ...] = ()
        self._scanned = self._looked = self._told = -math.inf
        self._outlook: dict[str, Outlook] = {}
        self._earlier: dict[Kind, RunInfo] = {}
        """The last completed run of each kind."""

    def keep(self) -> None:
        """Keeps the queue until nothing waits in it."""
        self._settle()
        while True:
            reaped, changed = self._reap(), self._changed()
            now = time.monotonic()
            if reaped or changed or now - self._looked >= LOOK_S:
                self._looked = now
                self._look(rescan=changed)
                if self._is_done():
                    return
            time.sleep(TICK_S)

    def _is_done(self) -> bool:
        waits = any(not entry.waiting.held for entry in self._queue)
        retries = any(entry.waiting.retry for entry in self._kept.values())
        # A search that was killed has left runs without one that follows them.
        searched = keep_searches(self._runs_dir)
        return not (waits or self._starting or retries or searched)

    def _settle(self) -> None:
        """Waits for what a keeper that was killed was just starting: which GPUs that has is not known before."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline and any(
            is_held(entry.run.lock) and not _has_started(entry.run) for entry in find_waiting(self._runs_dir)
        ):
            time.sleep(TICK_S)

    def _changed(self) -> bool:
        """Whether somebody has changed the queue, or a run has come or gone."""
        times = tuple(_changed_at(path) for path in (self._runs_dir, self._files.wake_file))
        changed = times != self._seen or time.monotonic() - self._scanned >= SCAN_S
        self._seen = times
        return changed

    def _reap(self) -> bool:
        """Takes note of runs that have started, or could not; returns whether there are any."""
        self._supervisors = [supervisor for supervisor in self._supervisors if supervisor.poll() is None]
        for run, waiting in [started.start.entry for started in self._starting.values()]:
            # From another machine, which cannot end the process that starts it.
            if not waiting.on_slurm and not {"stop", "stop-now"}.isdisjoint(sidecars.take_commands(run.commands)):
                end_run(self._runs_dir, run, "cancelled in the queue")
        done = []
        for run_id, started in self._starting.items():
            run = started.start.entry.run
            # A run that has started may still be noted in the queue: on a full disk.
            if started.process.poll() is not None or not os.path.lexists(run.waits) or _has_started(run):
                done.append(run_id)
        for run_id in done:
            started = self._starting.pop(run_id)
            code = started.process.returncode
            if code is None:
                self._supervisors.append(started.process)
            elif code == DISK_IS_FULL:
                self._postpone(run_id, f"there is no space left in {self._runs_dir}")
            elif code < 0 and started.start.entry.waiting.retry:
                run, waiting = started.start.entry
                with contextlib.suppress(OSError):
                    self._try_again(run, run.waits, msgspec.structs.replace(waiting, tried=waiting.tried + 1))
            elif code:
                if code < 0:
                    # Who cancels it has the lock next.
                    time.sleep(TICK_S)
                how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
                said = read_end(started.start.entry.run.supervisor_log, started.said_before, LAST_BYTES).strip()
                self._fail(started.start.entry.run, f"The run's supervisor did not start ({how}).\n{said}")
        if done:
            self._scan()
        return bool(done)

    def _fail(self, run: RunDir, reason: str) -> None:
        """Ends a run that cannot be started."""
        try:
            with open(run.take_lock()):
                if os.path.lexists(run.waits) and not has_started(run):
                    end(run, "failed", reason.strip())
                    daemon.say(f"{run.run_id}: {reason}")
        except FileNotFoundError:
            # It was deleted.
            pass
        except OSError as error:
            self._postpone(run.run_id, f"{run.path} cannot be written: {error.strerror or error}")

    def _postpone(self, run_id: str, why: str) -> None:
        self._later[run_id] = time.time() + LATER_S, why

    def _look(self, *, rescan: bool) -> None:
        if rescan:
            self._scan()
        else:
            for run_id in [run_id for run_id in self._live if not self._run(run_id).is_live()]:
                self._end(run_id)
        self._review()
        starts, reasons = self._decide()
        if starts and not rescan:
            # Somebody may have started or resumed a run himself.
            self._scan()
            starts, reasons = self._decide()
        for start in starts:
            self._start(start)
        self._tell(reasons)

    def _run(self, run_id: str) -> RunDir:
        return RunDir(self._runs_dir / run_id)

    def _scan(self) -> None:
        """Reads the queue anew, and which runs are live."""
        self._scanned = time.monotonic()
        self._queue = []
        for entry in find_waiting(self._runs_dir):
            if entry.run.run_id in self._starting:
                continue
            if _has_started(entry.run) or entry.run.has_job():
                # Its keeper was killed before it could note that.
                with contextlib.suppress(OSError):
                    note_started(entry.run)
            else:
                self._queue.append(entry)
        self._kept = {entry.run.run_id: entry for entry in find_kept(self._runs_dir)}
        live = {run.run_id for run in live_runs(self._runs_dir)} - self._starting.keys()
        for run_id in self._live.keys() - live:
            self._end(run_id)
        for run_id in live - self._live.keys():
            self._live[run_id] = held_by(self._run(run_id))

    def _end(self, run_id: str) -> None:
        """Notes what an ended run tells of others like it."""
        self._live.pop(run_id, None)
        info = summarise(self._run(run_id))
        if info.status == "completed" and info.config:
            self._earlier[kind(info.config)] = info

    def _review(self) -> None:
        """Puts runs back into the queue that are to be tried again, and forgets those that have ended."""
        for run_id, (run, waiting) in list(self._kept.items()):
            if waiting is UNREAD or run_id in self._live or run_id in self._starting or run.is_live():
                continue
            del self._kept[run_id]
            with contextlib.suppress(OSError):
                if waiting.retry and is_transient(run):
                    self._try_again(run, run.kept, waiting)
                remove(run.kept)

    def _try_again(self, run: RunDir, noted: Path, waiting: Waiting) -> None:
        """Puts a run back into the queue unless it was cancelled: then it has not the file that was `noted`.

        Raises OSError if it cannot be written, or somebody has its lock: it is looked at again.
        """
        with contextlib.suppress(FileNotFoundError), open(run.take_lock()):
            if not os.path.lexists(noted):
                return
            # Commands to an attempt that ended before it read them are not for this one.
            sidecars.take_commands(run.commands)
            later = time.time() + BACKOFF_S * 2 ** (waiting.tried - 1)
            again = msgspec.structs.replace(waiting, retry=waiting.retry - 1, not_before=later)
            mark_waiting(run, again)
            self._queue.append(Entry(run, again))
            self._queue.sort(key=lambda entry: entry.rank)
            daemon.say(f"{run.run_id} failed and is tried again")

    def _facts(self) -> Facts:
        waits_for_gpus = any(entry.waiting.platform == "cuda" and not entry.waiting.held for entry in self._queue)
        gpus: tuple[Gpu, ...] = self._gpus.look(GPUS_S) if waits_for_gpus else ()
        ours = {uuid for held in self._live.values() for uuid in held.gpus}
        busy = {gpu.uuid for gpu in gpus if use_of(gpu) == Use.IN_USE}
        # What the driver said is seconds old.
        busy = (busy | {lease.gpu for lease in leases()}) - ours
        starting = [_held_by(started.start) for started in self._starting.values()]
        return Facts(time.time(), gpus, busy, [*self._live.values(), *starting], cpu_slots(current_settings()))

    def _decide(self) -> tuple[list[Start], dict[str, str]]:
        now = time.time()
        self._later = {run_id: later for run_id, later in self._later.items() if later[0] > now}
        ready = [entry for entry in self._queue if entry.run.run_id not in self._later]
        starts, reasons = decide(ready, self._facts())
        starting = {run_id: f"it has been starting since {started.since}" for run_id, started in self._starting.items()}
        return starts, reasons | starting | {run_id: why for run_id, (_, why) in self._later.items()}

    def _start(self, start: Start) -> None:
        run, waiting = start.entry
        self._queue = [entry for entry in self._queue if entry.run != run]
        command = module("tuiapp.trainers.launch.queued", str(run.path), ",".join(start.gpus))
        directory = waiting.directory if os.path.isdir(waiting.directory) else "/"
        environment = waiting.environment or None
        try:
            started = start_process(run.supervisor_log, command, environment=environment, directory=directory)
        except (OSError, ValueError) as error:
            # A full disk, or an environment with a name that has "=", or too long.
            if is_full(error):
                self._postpone(run.run_id, f"there is no space left in {self._runs_dir}")
            else:
                self._fail(run, f"It cannot be started: {error}")
            return
        self._starting[run.run_id] = _Started(start, time.strftime("%H:%M"), *started)

    def _tell(self, reasons: dict[str, str]) -> None:
        """Writes for the views how what waits stands."""
        now = time.monotonic()
        late = now - self._told >= TELL_S
        if not late and reasons == {run_id: outlook.reason for run_id, outlook in self._outlook.items()}:
            return
        facts = self._facts()
        live = [replace(held, ends=self._expected_end(held.run_id, facts.now)) for held in facts.live]
        starts = forecast(self._queue, replace(facts, live=live), self._duration)
        outlooks = {run_id: Outlook(reason=reason, start=starts.get(run_id)) for run_id, reason in reasons.items()}
        if outlooks != self._outlook:
            with contextlib.suppress(OSError):
                write_atomically(self._files.outlook, msgspec.json.encode(outlooks))
        self._outlook, self._told = outlooks, now

    def _expected_end(self, run_id: str, now: float) -> float:
        """Returns the Unix time at which a live run is expected to end; infinite if it is not known."""
        info = summarise(self._run(run_id))
        if (remaining := remaining_s(info)) is not None:
            return now + remaining
        duration = info.config and seconds(info.config, info.total_steps, self._earlier)
        return max(now, (info.started or now) + (duration or math.inf))

    def _duration(self, entry: Entry) -> float | None:
        with contextlib.suppress(ConfigError, OSError, ValueError):
            return seconds(read_config(entry.run), read_plan(entry.run.plan).total_steps, self._earlier)
        return None


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _held_by(start: Start) -> HeldDevices:
    waiting = start.entry.waiting
    return HeldDevices(start.entry.run.run_id, start.gpus, exclusive=waiting.exclusive, on_slurm=waiting.on_slurm)


def _has_started(run: RunDir) -> bool:
    """Whether a run has started; False if its journal cannot be read: its own process says so."""
    with contextlib.suppress(OSError):
        return has_started(run)
    return False


def main() -> int:
    """Keeps the queue of the directory that the argument names; ends at once if another process does."""
    runs_dir = Path(sys.argv[1])
    files = QueueFiles(runs_dir)
    # Which GPUs a run may see is that run's own matter.
    os.environ.pop(VISIBLE, None)
    daemon.serve(files.lock, files.log, lambda: Keeper(runs_dir).keep(), lambda: has_work(runs_dir))
    return 0


if __name__ == "__main__":
    sys.exit(main())
