"""`tuiapp queue`: the runs that wait for their devices, and their order."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tuiapp.actions import queue
from tuiapp.actions.action import Outcome
from tuiapp.library.queue_words import clock, why_it_waits
from tuiapp.trainers.config.files import no_space
from tuiapp.trainers.config.machine import Machine, inspect_machine, unused
from tuiapp.trainers.config.placement import placement_problems
from tuiapp.trainers.config.run_config import Check
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import About, Change, Entry, find_waiting
from tuiapp.trainers.experiments.queue import Outlook, enqueue_all, outlook, start_keeper
from tuiapp.trainers.state.resume_point import check_weights
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import MISSING, plural, sanitize
from tuiapp.verbs.control import tell_problems
from tuiapp.verbs.facts import list_facts
from tuiapp.verbs.output import UsageError, print_json, tell, width_of_stdout
from tuiapp.verbs.sources import add_launcher, read_source, runs_dir, runs_of
from tuiapp.view.run_list import devices, model, title
from tuiapp.view.table import Column, plain_table

PLACES = {"first": 0, "last": sys.maxsize}


def add_runs(options: Namespace) -> int:
    """Queues a run of each source, in their order; nothing unless all can run. Prints their ids."""
    add_launcher(options)
    directory, machine = runs_dir(options), inspect_machine()
    about = Change(name=options.name, note=options.note, group=options.group, tags=tuple(options.tags)).of(About())
    if options.name and len(options.sources) > 1:
        raise UsageError(f"--name names one run, and these are {len(options.sources)}: give them a --group or --tag.")
    checks = queue_checks(machine)
    configs = [read_source(source, options.settings, checks, options.arguments) for source in options.sources or [None]]
    runs = enqueue_all(
        [(config, about) for config in configs],
        directory,
        machine=machine,
        priority=options.priority,
        retry=options.retry,
        parallel=options.parallel,
        held=options.hold,
    )
    ids = [entry.run.run_id for entry in find_waiting(directory)]
    if options.json:
        print_json([{"run": run.run_id, "directory": str(run.path), "place": _place(ids, run)} for run in runs])
        return 0
    for run in runs:
        number = _place(ids, run)
        print(run.run_id)
        tell(f"{run.run_id} is {f'number {number} in the queue' if number else 'starting'}")
    return 0


def _place(ids: Sequence[str], run: RunDir) -> int | None:
    return ids.index(run.run_id) + 1 if run.run_id in ids else None


def queue_checks(machine: Machine) -> list[Check]:
    """Returns what a configuration is checked for before it is queued: not for what is busy now."""
    idle = unused(machine)
    return [lambda config: placement_problems(config, idle), check_weights]


def list_queue(options: Namespace) -> int:
    """Prints what waits, the next one first."""
    directory = runs_dir(options)
    entries, outlooks = find_waiting(directory), outlook(directory)
    stuck = start_keeper(directory)
    # A full disk is the reason of whatever else goes wrong.
    trouble = no_space(directory) or stuck
    rows = [
        _Row(number, entry, summarise(entry.run), outlooks.get(entry.run.run_id, Outlook()), trouble)
        for number, entry in enumerate(entries, start=1)
    ]
    if options.json:
        print_json([_facts(row) for row in rows])
        return 0
    if not rows:
        print("Nothing waits in the queue. To add a run: tuiapp queue add PRESET", file=sys.stderr)
        return 0
    print(*plain_table(COLUMNS, rows, width_of_stdout()), sep="\n")
    return 0


class _Row(NamedTuple):
    place: int
    entry: Entry
    info: RunInfo
    outlook: Outlook
    trouble: str

    @property
    def reason(self) -> str:
        # When it is expected to start has a column of its own.
        return sanitize(why_it_waits(self.entry.waiting, Outlook(reason=self.outlook.reason), self.trouble))


def _column(name: str, rank: int, cell: Callable[[_Row], str], most: int = 60) -> Column[_Row]:
    return Column(name, len(name), cell, rank, left=True, most=most)


COLUMNS = (
    _column("PLACE", 0, lambda row: str(row.place)),
    _column("RUN", 1, lambda row: title(row.info)),
    _column("BACKEND", 4, lambda row: row.info.config.backend if row.info.config else MISSING),
    _column("MODEL", 5, lambda row: model(row.info)),
    _column("DEVICES", 6, lambda row: devices(row.info)),
    _column("PRIORITY", 7, lambda row: str(row.entry.waiting.priority)),
    _column("START", 3, lambda row: clock(row.outlook.start) if row.outlook.start else MISSING),
    _column("WHY IT WAITS", 2, lambda row: row.reason or MISSING, 80),
)


def _facts(row: _Row) -> dict[str, object]:
    waiting = row.entry.waiting
    return {
        "place": row.place,
        **list_facts(row.info),
        "priority": waiting.priority,
        "held": waiting.held,
        "retry": waiting.retry,
        "reason": row.reason,
        "expected_start": row.outlook.start,
    }


def move_runs(options: Namespace) -> int:
    """Moves runs to a place of the queue, in the order in which they are named."""
    runs = runs_of(options)
    index = PLACES.get(options.place)
    if index is None:
        if not options.place.isdecimal() or int(options.place) < 1:
            raise UsageError(f"{options.place!r} is no place in the queue: give first, last, or a number from 1.")
        index = int(options.place) - 1
    places = [(run, index if options.place == "last" else index + number) for number, run in enumerate(runs)]
    return _print_places(options, queue.move(places))


def hold_runs(options: Namespace) -> int:
    """Keeps runs in the queue until they are released."""
    return _print_places(options, queue.hold(_named(options), held=True))


def release_runs(options: Namespace) -> int:
    """Lets held runs start again."""
    return _print_places(options, queue.hold(_named(options), held=False))


def cancel_runs(options: Namespace) -> int:
    """Takes runs out of the queue; they end as stopped."""
    return _cancel(options, _named(options))


def clear_queue(options: Namespace) -> int:
    """Takes all runs out of the queue."""
    return _cancel(options, [entry.run for entry in find_waiting(runs_dir(options))])


def _cancel(options: Namespace, runs: Sequence[RunDir]) -> int:
    outcome = queue.cancel(runs)
    code = tell_problems(outcome)
    if options.json:
        print_json({"cancelled": [run.run_id for run in outcome.done]}, indent=None)
    else:
        tell(f"cancelled {plural(len(outcome.done), 'run')}")
    return code


def _named(options: Namespace) -> list[RunDir]:
    """Returns the runs that the command names, or all that wait."""
    if options.all:
        return [entry.run for entry in find_waiting(runs_dir(options))]
    if not options.runs:
        raise UsageError("Name the runs, or give --all.")
    return runs_of(options)


def _print_places(options: Namespace, outcome: Outcome) -> int:
    code, runs = tell_problems(outcome), outcome.done
    entries = find_waiting(runs_dir(options))
    ids = [entry.run.run_id for entry in entries]
    if options.json:
        held = {entry.run.run_id: entry.waiting.held for entry in entries}
        print_json(
            [{"run": run.run_id, "place": _place(ids, run), "held": held.get(run.run_id, False)} for run in runs]
        )
        return code
    for run in runs:
        number = _place(ids, run)
        tell(f"{run.run_id} is {f'number {number} of {len(ids)} in the queue' if number else 'starting'}")
    return code
