"""`tuiapp export`: a run's figures for other programs."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from trainers.contract.gaps import find_gaps
from trainers.contract.summary import summarise
from tuiapp.library.export import DIRECTORIES, ExportError, Format, What, export_to, write_rows
from tuiapp.library.find import find_run
from tuiapp.state.text import plural, sanitize
from tuiapp.verbs.sources import runs_dir

READERS = {"tensorboard": "tensorboard --logdir {}", "wandb-offline": "wandb sync {}/offline-run-*"}
"""Format -> the command that shows or uploads a directory."""


def export_run(options: Namespace) -> int:
    """Writes the figures to a file or directory, or to stdout."""
    run = find_run(options.run, runs_dir(options))
    info = summarise(run)
    if not info.is_readable:
        raise ExportError(f"{run.run_id} cannot be exported: {info.older or info.problem}")
    if options.output in (None, "-"):
        form: Format = options.format or "csv"
        what: What = options.what or "steps"
        if form not in ("csv", "jsonl"):
            raise ExportError(f"{form} is not written to stdout: give -o {'DIR' if form in DIRECTORIES else 'FILE'}.")
        count = write_rows(sys.stdout, run, what, form)
    else:
        path = Path(os.path.expanduser(options.output))
        form = options.format or _format_of(path)
        what = options.what or ("metrics" if form in DIRECTORIES else "steps")
        count = export_to(path, run, what, form, force=options.force)
        print(f"{plural(count, 'row')} of {what}: {sanitize(str(path))}", file=sys.stderr)
        if form in READERS:
            print(f"to show it: {READERS[form].format(shlex.quote(sanitize(str(path))))}", file=sys.stderr)
    if missing := find_gaps(run.journal).words:
        print(sanitize(f"tuiapp: {run.run_id}: {missing}."), file=sys.stderr)
    if not count:
        why = info.problem or f"the run is {info.status}"
        print(sanitize(f"tuiapp: {run.run_id} has no {what}: {why}."), file=sys.stderr)
    return 0


def _format_of(path: Path) -> Format:
    suffix = path.suffix.lower()
    if suffix in ("", ".csv"):
        return "csv"
    if suffix == ".jsonl":
        return "jsonl"
    if suffix == ".parquet":
        return "parquet"
    raise ExportError(
        f"{path.name}: unknown format {suffix!r}; end the name in .csv, .jsonl or .parquet, or give --format."
    )
