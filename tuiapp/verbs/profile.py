"""`tuiapp profile`: where the time of a live run's next steps goes; of an ended run, what was profiled last."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from tuiapp.actions import profile
from tuiapp.actions.action import ActionError
from tuiapp.library.find import titled
from tuiapp.library.liveness import LivenessProbe
from tuiapp.trainers.contract.events import Alert, Profile
from tuiapp.trainers.contract.journal import journal_end
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.follow import follow
from tuiapp.trainers.state.status import known
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import plural
from tuiapp.verbs.facts import UsageError, read_through
from tuiapp.verbs.output import print_json, tell
from tuiapp.verbs.sources import run_of
from tuiapp.view import profile as view

POLL_S = 0.05
OTHERS_S = 20.0
"""How long the other ranks are waited for, once one has reported."""


def profile_run(options: Namespace) -> int:
    """Has the next steps profiled, and prints where their time went."""
    run = run_of(options)
    info = summarise(run)
    if not run.is_live():
        found = view.latest(read_through(info)[1].profiles)
        if not found:
            raise UsageError(f"{titled(run)} is not running ({info.status}), and none of its steps were profiled.")
        return _print(found, options)
    if why := profile.refusal(info.status, info.config.backend if info.config else ""):
        raise ActionError(f"{run.run_id}: {why}")
    offset = journal_end(run.journal)
    if errors := profile.do(run, options.steps).of("error"):
        raise ActionError(*errors)
    tell(f"profiling {plural(options.steps, 'step')} of {titled(run)} …")
    try:
        found, failure = _wait(run, offset)
    except KeyboardInterrupt:
        tell("no longer waiting; the steps are still profiled.")
        raise
    if failure:
        tell(failure)
    if not found and not failure:
        tell(f"{titled(run)} ended before the steps were profiled: {summarise(run).status}.")
    return _print(found, options) if found else 1


def _wait(run: RunDir, offset: int) -> tuple[list[Profile], str]:
    """Returns the profiles of all ranks, of fewer if the run ends or the others take too long; and why one failed."""
    begun = known(run).status.begun
    ranks = begun.world_size if begun else 1
    found: dict[int, Profile] = {}
    failed: dict[int | None, str] = {}
    give_up = float("inf")
    with LivenessProbe(run) as pulse:
        for batch in follow(run, offset, pulse, check_every_s=POLL_S):
            for event in batch.events:
                if isinstance(event, Profile):
                    found[event.rank] = event
                elif isinstance(event, Alert) and event.kind == "profile":
                    failed[event.rank] = event.text
                else:
                    continue
                give_up = min(give_up, time.monotonic() + OTHERS_S)
            if len(found) + len(failed) >= ranks or time.monotonic() > give_up:
                break
            if not batch.events:
                if not batch.alive:
                    break
                time.sleep(POLL_S)
    return view.latest(found), next(iter(failed.values()), "")


def _print(found: Sequence[Profile], options: Namespace) -> int:
    if options.json:
        print_json(view.facts(found))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    print("\n".join(view.lines(found, width)))
    return 0
