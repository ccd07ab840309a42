"""`tuiapp export`: runs' figures for other programs."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from tuiapp.actions import export
from tuiapp.actions.action import Outcome
from tuiapp.library.export import ExportError
from tuiapp.library.exporters import EXPORTERS, What, names_of
from tuiapp.verbs.output import print_outcome
from tuiapp.verbs.sources import runs_of


def export_run(options: Namespace) -> int:
    """Writes the figures to a file or directory, of one run to stdout, too."""
    runs = runs_of(options)
    if options.output not in (None, "-"):
        path = Path(os.path.expanduser(options.output))
        form = options.format or ("csv" if len(runs) > 1 else _format_of(path))
        what: What = options.what or ("metrics" if EXPORTERS[form].is_directory else "steps")
        return print_outcome(export.do(runs, path, what, form, force=options.force))
    exporter, what, outcome = EXPORTERS[options.format or "csv"], options.what or "steps", Outcome()
    if len(runs) > 1:
        raise ExportError(f"{len(runs)} runs are not written to stdout: give -o DIR.")
    export.check(runs[0])
    if not exporter.is_text:
        where = "DIR" if exporter.is_directory else "FILE"
        raise ExportError(f"{exporter.name} is not written to stdout: give -o {where}.")
    export.say_missing(outcome, runs[0], what, exporter.print(runs[0], what))
    return print_outcome(outcome)


def _format_of(path: Path) -> str:
    suffix = path.suffix.lower() or ".csv"
    for exporter in EXPORTERS.values():
        if exporter.suffix == suffix:
            return exporter.name
    *most, last = [EXPORTERS[name].suffix for name in names_of(directories=False)]
    raise ExportError(
        f"{path.name}: unknown format {suffix!r}; end the name in {', '.join(most)} or {last}, or give --format."
    )
