"""`tuiapp runs` and `show`: what there is of runs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from datetime import datetime

from trainers.contract.config import to_mapping, to_toml_values
from trainers.contract.events import RankFailed
from trainers.contract.journal import read_tail
from trainers.contract.manifest import CheckpointDir, best_checkpoint, list_checkpoints
from trainers.contract.options import format_value
from trainers.contract.runs import RunInfo, find_run, list_runs, summarise
from tuiapp.state.text import (
    format_bytes,
    format_count,
    format_duration,
    format_metric,
    format_percent,
    format_rate,
    sanitize,
    sanitize_lines,
)
from tuiapp.verbs.facts import checkpoint_facts, resume_command, resume_hint, run_facts
from tuiapp.verbs.sources import runs_dir


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
    checkpoints, damaged = list_checkpoints(run.checkpoints)
    if options.json:
        more = {
            "reason": info.reason,
            "config": to_toml_values(info.config) if info.config else None,
            "traceback": failure.traceback if failure else None,
            "checkpoints": checkpoint_facts(checkpoints),
            "resume": resume_command(run) or None,
        }
        print(json.dumps({**_facts(info), **more}, indent=2))
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
    _print_checkpoints(checkpoints, damaged)
    if hint := resume_hint(run):
        print(f"\n{sanitize(hint)}")
    if failure is not None:
        print()
        for line in sanitize_lines(failure.traceback or "\n".join(failure.last_lines)):
            print(line)
    return 0


def _print_checkpoints(checkpoints: list[CheckpointDir], damaged: list[str]) -> None:
    if not checkpoints and not damaged:
        return
    best = best_checkpoint(checkpoints)
    print("\ncheckpoints")
    for one in checkpoints:
        manifest = one.manifest
        cells = [
            f"{one.path.name:15}",
            f"epoch {format_count(round(manifest.epoch, 2)):6}",
            f"{format_bytes(one.bytes):9}",
            f"accuracy {format_percent(manifest.accuracy, 1)}" if manifest.accuracy is not None else "",
            "best" if one is best else "",
            "" if manifest.finite else "weights not finite",
        ]
        print("  " + "  ".join(cell for cell in cells if cell).rstrip())
    for problem in damaged:
        print(f"  {sanitize(problem)}")


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
