"""`tuiapp run`: the dashboard's headless twin."""

from __future__ import annotations

import json
import signal
import sys
import time
from argparse import Namespace
from types import FrameType

from trainers.contract import mailbox
from trainers.contract.journal import JournalReader
from trainers.contract.machine import inspect_machine
from trainers.contract.placement import misplaced
from trainers.contract.rundir import RunDir
from trainers.contract.runs import summarise
from trainers.launch import launch
from tuiapp.state.run_state import RunState
from tuiapp.verbs.facts import run_facts
from tuiapp.verbs.narration import Narrator, narrator
from tuiapp.verbs.sources import read_source, runs_dir

POLL_S = 0.05
LIVE_CHECK_S = 1.0
EXIT_CODES = {"completed": 0, "failed": 1, "lost": 1, "stopped": 3}


def launch_run(options: Namespace) -> int:
    """Launch a run; unless detached, report on it on stderr until it ends."""
    machine = inspect_machine()
    config = read_source(options.source, options.settings, [lambda config: misplaced(config, machine)])
    run = launch(config, runs_dir(options), machine)
    if options.detach:
        facts = {"run": run.run_id, "directory": str(run.path)}
        print(json.dumps(facts) if options.json else run.run_id)
        return 0
    interrupts = _Interrupts(run)
    with interrupts, narrator(sys.stderr, run) as narrate:
        state = _follow(run, narrate)
    status = "failed" if state.status == "lost" else state.status
    if options.json:
        # A run that was lost never summed itself up: what its journal tells is taken instead.
        summary = state.ended.summary if state.ended else summarise(run).summary
        print(json.dumps(run_facts(run, status, summary)))
    return 130 if interrupts.by_key else EXIT_CODES[status]


def _follow(run: RunDir, narrate: Narrator) -> RunState:
    reader, state = JournalReader(run.journal), RunState(run.run_id)
    checked = time.monotonic()
    while state.is_live:
        # Asked before the read, so that an end written in between is still seen.
        alive = True
        if time.monotonic() - checked > LIVE_CHECK_S:
            alive, checked = run.is_live(), time.monotonic()
        events = reader.read()
        for event in events:
            state.apply(event)
            narrate.event(event, state)
        if not events:
            if not alive:
                state.mark_lost()
            narrate.tick(state)
            time.sleep(POLL_S)
    narrate.end(state)
    return state


class _Interrupts:
    """Ctrl-C and SIGTERM stop the run: the first after the step under way, the second at once."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._count = 0
        self.by_key = False
        """Ctrl-C was pressed."""

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        self.by_key |= number == signal.SIGINT
        try:
            mailbox.send(self._run.commands, "stop" if self._count == 1 else "stop-now")
        except OSError as error:
            print(f"tuiapp: cannot ask the run to stop: {error.strerror} ({self._run.commands})", file=sys.stderr)
