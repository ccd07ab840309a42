"""`tuiapp run`: the dashboard's headless twin."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from argparse import Namespace
from collections import deque
from getpass import getpass
from types import FrameType
from typing import NoReturn

from tuiapp.actions import resume as resuming
from tuiapp.actions.action import ActionError
from tuiapp.actions.command import send
from tuiapp.library.find import find_run
from tuiapp.library.liveness import LivenessProbe
from tuiapp.terminal.ascii_filter import wants_ascii
from tuiapp.trainers.config.gpu_choice import use_of
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.memory import can_estimate, estimate_memory
from tuiapp.trainers.config.placement import place, placement_problems
from tuiapp.trainers.config.run_config import Check, RunConfig
from tuiapp.trainers.config.script_syntax import MODULE
from tuiapp.trainers.config.settings import Settings, read_settings, settings_path
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.orphans import describe_orphans, find_orphans
from tuiapp.trainers.contract.rundir import SECRET_VARIABLE, RunDir
from tuiapp.trainers.contract.sidecars import About, Change, read_about
from tuiapp.trainers.experiments.queue import enqueue
from tuiapp.trainers.launch import launch
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.follow import follow
from tuiapp.trainers.state.resume_point import check_weights
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.summary import run_facts, summarise
from tuiapp.trainers.state.text import sanitize
from tuiapp.verbs.narration import PlainNarrator, narrator
from tuiapp.verbs.output import UsageError, print_json, tell
from tuiapp.verbs.queue import queue_checks
from tuiapp.verbs.sources import add_launcher, read_like, read_named, runs_dir
from tuiapp.view.launch_warnings import busy_gpus, describe_use, memory_warning, unfilled, why_cpu
from tuiapp.view.notification import ending, notification

POLL_S = 0.05
LET_GO_S = 5.0  # from a run's last event to the end of the wait: somebody else may have resumed it
EXIT_CODES = {"completed": 0, "failed": 1, "lost": 1, "stopped": 3}


def launch_run(options: Namespace) -> int:
    """Launches or resumes a run and, unless detached, reports on stderr until it ends."""
    for line in describe_orphans(find_orphans(runs_dir(options))).splitlines():
        tell(f"left behind by {line}; to end it: tuiapp doctor --end-strays")
    run, offset = _begin(options)
    settings, problems = read_settings()
    for problem in problems:
        tell(f"{settings_path()}: {problem}")
    if options.detach:
        facts = {"run": run.run_id, "directory": str(run.path)}
        print_json(facts, indent=None) if options.json else print(run.run_id)
        return 0
    state, by_key = watch(run, offset, plain=options.plain, quiet=options.quiet)
    _ring(settings, run)
    if state.status != "completed" and (hint := resuming.hint(run)):
        print(hint, file=sys.stderr)
    status = "failed" if state.status == "lost" else state.status
    if options.json:
        # A lost run has no summary: use its journal.
        summary = state.ended.summary if state.ended else summarise(run).summary
        print_json(run_facts(run, status, summary), indent=None)
    if options.strict and status == "completed" and state.blemishes:
        return 1
    return 130 if by_key else EXIT_CODES[status]


def watch(run: RunDir, offset: int = 0, *, plain: bool = False, quiet: bool = False) -> tuple[RunState, bool]:
    """Reports on stderr until a run ends; Ctrl-C and SIGTERM stop it. Also returns whether it was Ctrl-C."""
    ascii_only = wants_ascii(read_settings()[0].unicode, os.environ)
    narrate = narrator(sys.stderr, run, plain=plain, quiet=quiet, ascii_only=ascii_only)
    with LivenessProbe(run) as pulse, _Interrupts(run, pulse) as interrupts:
        return _follow(run, pulse, narrate, offset, interrupts.notes), interrupts.by_key


def _ring(settings: Settings, run: RunDir) -> None:
    """Rings the bell and sends a notification: after a long run the user may be away."""
    if not sys.stderr.isatty():
        return
    text = notification(settings.notification, "tuiapp", ending(summarise(run)), os.environ)
    with contextlib.suppress(OSError):
        print(("\a" if settings.bell else "") + text, end="", file=sys.stderr, flush=True)


def _begin(options: Namespace) -> tuple[RunDir, int]:
    add_launcher(options)
    machine = inspect_machine()
    change = Change(name=options.name, note=options.note, group=options.group, tags=tuple(options.tags))
    about = change.of(About())
    if options.module is not None and options.source is not None:
        raise UsageError(f"-m {options.module} names what to run: leave out {options.source!r}.")
    if options.module is not None:
        options.source = f"{MODULE}{options.module}"
    here: list[Check] = [lambda config: placement_problems(config, machine)]
    if options.resume is None:
        checks = queue_checks(machine) if options.queue else [*here, check_weights]
        config = read_named(options, checks)
        if options.queue:
            return enqueue(config, runs_dir(options), about, machine=machine), 0
        _warn(config, machine)
        return launch(config, runs_dir(options), machine, about), 0
    if options.queue:
        raise UsageError("--queue is for new runs: omit it, or --resume.")
    if options.like is not None:
        raise UsageError("--resume continues a run, --like starts a new one: omit one of them.")
    if options.source is not None:
        raise UsageError(
            f"--resume uses the run's own configuration: omit {options.source!r} or --resume. "
            "To change a key: --set KEY=VALUE."
        )
    run = find_run(options.resume, runs_dir(options))
    config = read_like(run, options.settings, here, arguments=options.arguments)
    _warn(config, machine)
    resumed = resuming.go_on(run, config, machine, change)
    for note in resumed.notes:
        tell(note)
    return run, resumed.offset


def _warn(config: RunConfig, machine: Machine) -> None:
    placed = place(config, machine)
    memory = memory_warning(placed, machine, estimate_memory(placed)) if can_estimate(placed) else ""
    busy = [f"GPU {gpu.number} is {use_of(gpu).words}: {describe_use(gpu)}" for gpu in busy_gpus(placed, machine)]
    cpu = f"no GPU is used: {why}" if (why := why_cpu(config, placed, machine)) else ""
    for warning in filter(None, (*busy, memory, cpu, unfilled(config))):
        tell(warning)


def _follow(run: RunDir, pulse: LivenessProbe, narrate: PlainNarrator, offset: int, notes: deque[str]) -> RunState:
    state = RunState(run.run_id, about=read_about(run)[0])
    for batch in follow(run, offset, pulse):
        state.note_trouble(batch.trouble)
        while notes:
            narrate.say(f"tuiapp: {sanitize(notes.popleft())}")
        for event in batch.events:
            apply(state, event)
            narrate.event(event, state)
        if not batch.events and not batch.alive:
            state.mark_lost(removed=run.is_gone())
        # Slurm may start an ended run again: its job says, a moment later.
        if not state.is_live and not run.has_job():
            break
        if not batch.events:
            narrate.tick(state)
            time.sleep(POLL_S)
    # The supervisor may not have let go yet: until then the run counts as live.
    run.wait_until_over(LET_GO_S)
    narrate.end(state)
    return state


class _Interrupts:
    """Ctrl-C and SIGTERM stop the run: the first after the current step, the second at once. SIGUSR1 saves."""

    def __init__(self, run: RunDir, pulse: LivenessProbe) -> None:
        self._run, self._pulse = run, pulse
        self._count = 0
        self.by_key = False  # Ctrl-C was pressed
        self.notes: deque[str] = deque()  # printed later by the narrator, which a signal may interrupt

    def __enter__(self) -> _Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGUSR1, self._save)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # It may still arrive; its default action would end this program, not the run.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        self.by_key |= number == signal.SIGINT
        self._send("stop" if self._count == 1 else "stop-now")

    def _save(self, _number: int, _: FrameType | None) -> None:
        self._send("checkpoint")

    def _send(self, command: sidecars.Command) -> None:
        try:
            if instead := send(self._run, command, self._pulse.note):
                self.notes.append(instead)
        except ActionError as error:
            self.notes.append(str(error))


AGENT = (sys.executable, "-P", "-m", "tuiapp.trainers.run.node")


def join_run(options: Namespace) -> NoReturn:
    """Serves the run until it ends."""
    host, _, port = options.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{options.address!r} is not an address; type HOST:PORT, as the run's log gives it.")
    if options.node < 0:
        raise UsageError(f"{options.node} is no node; the others are counted from 1, and 0 is the first that is free.")
    command = [*AGENT, options.address, str(options.node)]
    if options.secret_file is None:
        secret = getpass("secret of the run: ") if sys.stdin.isatty() else sys.stdin.readline()
        _serve(dict(os.environ), command, secret.strip())
    if not os.path.isfile(options.secret_file):
        raise UsageError(f"There is no file {options.secret_file!r}; it is `secret` in the run's directory.")
    _serve({**os.environ, SECRET_VARIABLE: options.secret_file}, command, "")


def _serve(environment: dict[str, str], command: list[str], secret: str) -> NoReturn:
    """Becomes the agent, whose standard input has the secret: signals and the terminal's keys are its own."""
    read, write = os.pipe()
    os.write(write, secret.encode() + b"\n")
    os.close(write)
    os.dup2(read, 0)
    os.execve(command[0], command, environment)
