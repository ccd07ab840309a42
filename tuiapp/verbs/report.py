"""`tuiapp report`: runs as a page that is read without tuiapp."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import Namespace
from pathlib import Path

from trainers.contract.rundir import RunDir
from trainers.state.text import sanitize
from tuiapp.library.export import ExportError, exists, other_file, put_in_place
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.sources import runs_of
from tuiapp.view.figure import DASHES

FORMATS = (".html", ".md")


def write_report(options: Namespace) -> int:
    """Writes the page, and for Markdown its figures."""
    runs, path = runs_of(options), Path(os.path.expanduser(options.output))
    if len(runs) > len(DASHES):
        raise UsageError(f"A report has {len(DASHES)} runs at most, not {len(runs)}: more curves cannot be told apart.")
    if path.suffix.lower() not in FORMATS:
        raise ExportError(f"{path.name}: a report's name must end in {' or '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise ExportError(f"The directory {path.parent} does not exist.")
    if path.exists() and not path.is_file():
        raise ExportError(f"{path} is not a regular file.")
    if path.exists() and not options.force:
        raise ExportError(exists(path))
    _write(path, runs, force=options.force)
    print(sanitize(str(path)), file=sys.stderr)
    return 0


def _write(path: Path, runs: list[RunDir], *, force: bool) -> None:
    # They import numpy, which a wrong name need not wait for.
    from tuiapp.library.report import figures, read_runs
    from tuiapp.library.report_html import to_html
    from tuiapp.library.report_markdown import to_markdown

    read = read_runs(runs)
    for run in read:
        if not run.info.is_readable:
            raise ExportError(f"{run.run_id} cannot be reported: {run.info.problem}")
    written = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    if path.suffix.lower() == ".html":
        with put_in_place(path, force=force) as temporary:
            temporary.write_text(to_html(read, written), encoding="utf-8")
        return
    beside = path.with_name(f"{path.stem}-figures")
    if beside.exists() and (not beside.is_dir() or not force):
        raise ExportError(exists(beside))
    if other := other_file(beside, ".svg"):
        raise ExportError(f"{beside} has other files than a report's figures, such as {other}: choose another name.")
    pictures = figures(read, standalone=True)
    names = [f"{number:02}-{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60]}.svg" for number, (name, _) in enumerate(pictures)]
    with put_in_place(beside, force=force) as temporary:
        temporary.mkdir()
        for name, (_, picture) in zip(names, pictures, strict=True):
            (temporary / name).write_text(picture, encoding="utf-8")
    metrics = [(metric, f"{beside.name}/{name}") for name, (metric, _) in zip(names, pictures, strict=True)]
    with put_in_place(path, force=force) as temporary:
        temporary.write_text(to_markdown(read, written, metrics), encoding="utf-8")
