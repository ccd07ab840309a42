"""`tuiapp runs`, `show` and `stop`: runs on the command line."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from datetime import datetime

from trainers.contract import mailbox
from trainers.contract.config import to_mapping, to_toml_values
from trainers.contract.events import RankFailed
from trainers.contract.journal import read_tail
from trainers.contract.options import format_value
from trainers.contract.runs import RunInfo, find_run, list_runs, summarise
from trainers.launch import LaunchError
from tuiapp.state.text import format_duration, format_metric, format_percent, format_rate, sanitize, sanitize_lines
from tuiapp.verbs.facts import run_facts
from tuiapp.verbs.sources import runs_dir

STOP_TIMEOUT_S = 60.0


def list_all(options: Namespace) -> int:
    """One line per run, or one JSON array."""
    directory = runs_dir(options)
    infos = [summarise(run) for run in list_runs(directory)]
    if options.json:
        print(json.dumps([_facts(info) for info in infos], indent=2))
        return 0
    if not infos:
        print(f"There is no run in {directory} yet. To make one: tuiapp run quickstart", file=sys.stderr)
        return 0
    header = ("RUN", "STATE", "STEPS", "LOSS", "ACCURACY", "EXAMPLES/S", "TOOK", "STARTED")
    rows = [header, *(_row(info) for info in infos)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def show_run(options: Namespace) -> int:
    """All about one run."""
    run = find_run(options.run, runs_dir(options))
    info = summarise(run)
    failure = _first_failure(info)
    if options.json:
        config = to_toml_values(info.config) if info.config else None
        traceback = failure.traceback if failure else None
        print(json.dumps({**_facts(info), "reason": info.reason, "config": config, "traceback": traceback}, indent=2))
        return 0
    facts = dict(
        zip(("state", "steps", "loss", "accuracy", "examples/s", "took", "started"), _row(info)[1:], strict=True)
    )
    for name, text in {"run": run.run_id, "directory": str(run.path), **facts, "reason": info.reason}.items():
        print(f"{name:12}{sanitize(text)}")
    print()
    if info.config is None:
        print(sanitize(info.problem))
    else:
        for key, value in to_mapping(info.config).items():
            print(f"{key:18}{sanitize(format_value(value))}")
    if failure is not None:
        print()
        for line in sanitize_lines(failure.traceback or "\n".join(failure.last_lines)):
            print(line)
    return 0


def stop_run(options: Namespace) -> int:
    """Ask a run to stop, and wait until it has."""
    run = find_run(options.run, runs_dir(options))
    if not run.is_live():
        print(f"tuiapp: {run.run_id} is not running: {summarise(run).status}.", file=sys.stderr)
        return 2
    try:
        mailbox.send(run.commands, "stop-now" if options.now else "stop")
    except OSError as error:
        raise LaunchError(f"Cannot write to {run.commands}: {error.strerror}.") from error
    print(f"stopping {run.run_id} …", file=sys.stderr)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while run.is_live():
        if time.monotonic() > deadline:
            print(f"tuiapp: it has not stopped yet. At once: tuiapp stop --now {run.run_id}", file=sys.stderr)
            return 1
        time.sleep(0.05)
    info = summarise(run)
    print(f"{info.status}: {sanitize(info.reason)}", file=sys.stderr)
    return 0


def _first_failure(info: RunInfo) -> RankFailed | None:
    failures = [event for event in read_tail(info.directory.journal, 1 << 20) if isinstance(event, RankFailed)]
    # The reason names the rank that failed first.
    named = [failure for failure in failures if info.reason.startswith(f"rank {failure.rank} ")]
    return next(iter(named or failures), None)


def _facts(info: RunInfo) -> dict[str, object]:
    return run_facts(info.directory, info.status, info.summary)


def _row(info: RunInfo) -> tuple[str, ...]:
    summary = info.summary
    started = datetime.fromtimestamp(info.started).strftime("%Y-%m-%d %H:%M:%S") if info.started else "–"
    return (
        info.directory.run_id,
        info.status,
        f"{summary.steps:,}",
        format_metric(summary.loss),
        format_percent(summary.test_accuracy, 1),
        format_rate(summary.examples_per_second),
        format_duration(summary.seconds),
        started,
    )
