"""Report: runs with their curves as one HTML page, or Markdown with its figures beside it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from tuiapp.actions.action import Outcome
from tuiapp.library.export import ExportError, exists, other_file, put_in_place
from tuiapp.trainers.config.user_code import slug
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import plural
from tuiapp.view.figure import DASHES

FORMATS = (".html", ".md")
MOST = len(DASHES)
"""Most runs of a report: the curves of more cannot be told apart."""


def refusal(count: int) -> str:
    """Says why so many runs cannot be reported; "" if they can."""
    return "" if count <= MOST else f"A report has {MOST} runs at most, not {count}: more curves cannot be told apart."


def suggested(infos: Sequence[RunInfo]) -> str:
    """Returns what a report is called, without its suffix, unless somebody says otherwise."""
    if len(infos) == 1:
        return infos[0].directory.run_id
    group = infos[0].about.group
    return f"report-{slug(group)}" if group and all(info.about.group == group for info in infos) else "report"


def check_report(path: Path, count: int, *, force: bool) -> None:
    """Raises `ExportError` if a report of so many runs cannot be written to `path`."""
    if why := refusal(count):
        raise ExportError(why)
    if path.suffix.lower() not in FORMATS:
        raise ExportError(f"{path.name}: a report's name must end in {' or '.join(FORMATS)}.")
    if not os.path.isdir(path.parent):
        raise ExportError(f"The directory {path.parent} does not exist.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ExportError(f"{path} is not a regular file.")
    if os.path.exists(path) and not force:
        raise ExportError(exists(path))


def do(runs: Sequence[RunDir], path: Path, *, force: bool = False) -> Outcome:
    """Writes the page, and for Markdown its figures. Raises `ExportError` if it cannot."""
    _write(runs, path, force=force)
    outcome = Outcome([*runs])
    outcome.say(f"{plural(len(runs), 'run')}: {path}")
    return outcome


def _write(runs: Sequence[RunDir], path: Path, *, force: bool) -> None:
    check_report(path, len(runs), force=force)
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
    if os.path.exists(beside) and (not os.path.isdir(beside) or not force):
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
