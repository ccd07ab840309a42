"""`tuiapp export`: a run's figures for other programs."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from tuiapp.library.export import ExportError, export_to
from tuiapp.library.exporters import EXPORTERS, What, names_of
from tuiapp.trainers.state.history import find_gaps
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import plural, sanitize
from tuiapp.verbs.output import tell
from tuiapp.verbs.sources import run_of


def export_run(options: Namespace) -> int:
    """Writes the figures to a file or directory, or to stdout."""
    run = run_of(options)
    info = summarise(run)
    if not info.is_readable:
        raise ExportError(f"{run.run_id} cannot be exported: {info.problem}")
    if options.output in (None, "-"):
        exporter = EXPORTERS[options.format or "csv"]
        what: What = options.what or "steps"
        if not exporter.is_text:
            where = "DIR" if exporter.is_directory else "FILE"
            raise ExportError(f"{exporter.name} is not written to stdout: give -o {where}.")
        count = exporter.print(run, what)
    else:
        path = Path(os.path.expanduser(options.output))
        exporter = EXPORTERS[options.format or _format_of(path)]
        what = options.what or ("metrics" if exporter.is_directory else "steps")
        count = export_to(path, run, what, exporter.name, force=options.force)
        print(f"{plural(count, 'row')} of {what}: {sanitize(str(path))}", file=sys.stderr)
        if exporter.reader:
            print(f"to show it: {exporter.reader.format(shlex.quote(sanitize(str(path))))}", file=sys.stderr)
    if missing := find_gaps(run.journal).words:
        tell(f"{run.run_id}: {missing}.")
    if not count:
        why = info.problem or f"the run is {info.status}"
        tell(f"{run.run_id} has no {what}: {why}.")
    return 0


def _format_of(path: Path) -> str:
    suffix = path.suffix.lower() or ".csv"
    for exporter in EXPORTERS.values():
        if exporter.suffix == suffix:
            return exporter.name
    *most, last = [EXPORTERS[name].suffix for name in names_of(directories=False)]
    raise ExportError(
        f"{path.name}: unknown format {suffix!r}; end the name in {', '.join(most)} or {last}, or give --format."
    )
