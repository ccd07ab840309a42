"""One rank's process: `tuiapp.trainers.rank.process RUN_DIR RANK`, in the environment set by the supervisor.

`tuiapp.trainers.config.bootstrap` runs it, in any interpreter that has msgspec, NumPy and the backend's framework:
nothing that it imports may need more. The only place that resolves a backend. A backend's exception is sent with its
time, so that the supervisor can distinguish the first failure from its consequences.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.config.user_code import UserCodeError, files_of
from tuiapp.trainers.contract.manifest import read_checkpoint
from tuiapp.trainers.contract.media import MediaFolder
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.rank.stop_gate import StopGate
from tuiapp.trainers.run import stacks, wire
from tuiapp.trainers.run.disk_full_safe_stdio import make_stdio_disk_full_safe
from tuiapp.trainers.run.rank_end import rank_error
from tuiapp.trainers.sources.datasets import normalized
from tuiapp.trainers.sources.user_code import format_error

ORPHAN_S = 5.0
"""Time the reaper gets, once the supervisor is gone, before a rank ends itself and its children."""

_kept: list[Exception] = []
"""Never freed: the frames of an exception hold the process group, whose destructor may wait for the other ranks."""


def main() -> int:
    """Trains; exit code 0 if the backend returned, 1 if it raised."""
    run, rank = RunDir(Path(sys.argv[1])), int(sys.argv[2])
    make_stdio_disk_full_safe()
    # A crash in native code leaves the Python stacks in stderr.log.
    faulthandler.enable()
    stacks.answer_the_signal(run.rank(rank))
    plan = read_plan(run.plan)
    if plan.config.launcher == "slurm":
        # Slurm sends it to every process of a job that it ends: the run saves a checkpoint in the time that is left.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Before anything is loaded: a message may come at any moment.
    resume_from = Path(os.environ[wire.RESUME_FROM]) if wire.RESUME_FROM in os.environ else None
    done = read_checkpoint(resume_from).manifest.step if resume_from else 0
    gate, recorded = StopGate(done), {done}
    # One process that owns all devices, or those of its node, reports for each of them.
    speaks_for = plan.reported_by(rank)
    pipe = int(os.environ[wire.EVENTS_FD])
    report = Reporter(rank, pipe, gate, plan.config.nan_policy, speaks_for, plan.steps_per_epoch)
    report.profiles, report.media = run.profiles, MediaFolder(run, rank)
    control = int(os.environ[wire.CONTROL_FD])
    stacks_due, listening = threading.Event(), threading.Event()
    for name, target, arguments in (
        ("control", _serve_control_pipe, (control, gate, report, recorded, stacks_due, listening)),
        ("stacks", _tell_stacks, (stacks_due, report, run.rank(rank))),
    ):
        threading.Thread(target=target, args=arguments, name=name, daemon=True).start()
    # A stop that was asked for before is heard before the first step.
    listening.wait()
    report.phase("preparing")
    try:
        plan = normalized(plan)
        with Checkpoints(run, plan, rank, report, recorded, resume_from) as checkpoints:
            backend = importlib.import_module(BACKENDS[plan.config.backend].module)
            backend.train(plan, rank, report, checkpoints)
    except Exception as error:
        _kept.append(error)
        # Of an error in the user's file the message says it all; the traceback is of no use to them.
        in_file = isinstance(error, DatasetError | UserCodeError | ConfigError)
        text = "" if in_file else format_error(error, files_of(plan.config.model, plan.config.dataset))
        report.fail(rank_error(error, text))
        print(text.rstrip("\n") or error, file=sys.stderr)
        return 1
    else:
        report.phase("done")
        return 0
    finally:
        report.close()


def _serve_control_pipe(
    fd: int,
    gate: StopGate,
    report: Reporter,
    recorded: set[int],
    stacks_due: threading.Event,
    listening: threading.Event,
) -> None:
    """Answers the supervisor, and sends heartbeats, until it is gone."""
    messages = wire.control_messages(fd)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    due = time.monotonic()
    while not messages.ended:
        if (left := due - time.monotonic()) <= 0:
            report.beat()
            due = time.monotonic() + wire.HEARTBEAT_S
            continue
        if not poll.poll(1000 * left if listening.is_set() else 0):
            listening.set()
            continue
        for message in messages.read():
            match message:
                case wire.Propose(vote_round):
                    report.vote(vote_round)
                case wire.Agreed(step, stop, save, profile, due):
                    gate.decide(step, stop=stop, save=save, profile=profile, due=due)
                case wire.Recorded(step):
                    recorded.add(step)
                case wire.TellStacks():
                    # In a hang the disk may block whoever writes, a driver whoever asks it; this thread must go on.
                    stacks_due.set()
    listening.set()
    gate.release()
    # The supervisor is gone, and its reaper ends this process within a moment, native code or not. If the reaper is
    # gone too, nobody else would.
    time.sleep(ORPHAN_S)
    os.killpg(os.getpid(), signal.SIGKILL)


def _tell_stacks(stacks_due: threading.Event, report: Reporter, directory: Path) -> None:
    while stacks_due.wait():
        stacks_due.clear()
        stacks.tell(directory)
        try:
            if report.collectives is not None and (collectives := report.collectives()) is not None:
                collectives.tell(directory)
        except Exception:
            # Of a framework's version that answers otherwise, or of the disk: the hang is reported without.
            traceback.print_exc()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is sent and written. Shutting down the interpreter around the frameworks' native threads takes most of
    # a second, and sometimes ends in "terminate called without an active exception".
    os._exit(code)
