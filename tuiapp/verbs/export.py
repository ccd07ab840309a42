"""`tuiapp export`: a run's figures for other programs."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from trainers.contract.gaps import find_gaps
from trainers.contract.summary import summarise
from tuiapp.library.export import ExportError, Format, export_to, write_rows
from tuiapp.library.find import find_run
from tuiapp.state.text import plural, sanitize
from tuiapp.verbs.sources import runs_dir


def export_run(options: Namespace) -> int:
    """Writes the figures to a file, or to stdout."""
    run = find_run(options.run, runs_dir(options))
    info = summarise(run)
    if not info.is_readable:
        raise ExportError(f"{run.run_id} cannot be exported: {info.older or info.problem}")
    to_stdout = options.output in (None, "-")
    if to_stdout:
        count = write_rows(sys.stdout, run, options.what, options.format or "csv")
    else:
        path = Path(os.path.expanduser(options.output))
        form = options.format or _format_of(path)
        count = export_to(path, run, options.what, form, force=options.force)
        print(f"{plural(count, 'row')} of {options.what}: {sanitize(str(path))}", file=sys.stderr)
    if missing := find_gaps(run.journal).words:
        print(sanitize(f"tuiapp: {run.run_id}: {missing}."), file=sys.stderr)
    if not count:
        why = info.problem or f"the run is {info.status}"
        print(sanitize(f"tuiapp: {run.run_id} has no {options.what}: {why}."), file=sys.stderr)
    return 0


def _format_of(path: Path) -> Format:
    suffix = path.suffix.lower()
    if suffix in ("", ".csv"):
        return "csv"
    if suffix == ".jsonl":
        return "jsonl"
    raise ExportError(
        f"{path.name}: unknown format {suffix!r}; end the name in .csv or .jsonl, or give it no extension."
    )
