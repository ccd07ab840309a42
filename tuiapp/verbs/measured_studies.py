"""What scaling studies and shoot-outs have in common: their runs are queued, followed, and made into a table."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

from msgspec.structs import replace

from tuiapp.library.export import ExportError, exists, put_in_place
from tuiapp.library.queue_words import queue_trouble
from tuiapp.terminal.ascii_filter import to_ascii, wants_ascii
from tuiapp.trainers.config.machine import Machine
from tuiapp.trainers.config.script import subject
from tuiapp.trainers.config.settings import read_settings
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import read_waiting
from tuiapp.trainers.experiments.queue import Outlook, keep_alive, outlook
from tuiapp.trainers.experiments.study import Study, StudyDir, StudyError, stem_of
from tuiapp.trainers.experiments.sweep import Planned, begin_measured
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import format_duration, format_rate, join_words, plural, sanitize
from tuiapp.verbs.output import UsageError, print_json, tell, width_of_stdout
from tuiapp.verbs.sources import runs_dir
from tuiapp.view.axes import LABEL_CELLS
from tuiapp.view.chart import LEFT_CELLS, Chart, frame
from tuiapp.view.comparison import MOST
from tuiapp.view.measured import Measured, Sheet, completed, run_facts
from tuiapp.view.raster import rasterize
from tuiapp.view.run_list import state

POLL_S = 0.5
CHART_LINES, LEAST_COLUMNS, MOST_COLUMNS = 12, 30, 72


def targets(options: Namespace) -> dict[str, Path]:
    """Returns the files to write, by option; raises `ExportError` before anything has run for them."""
    files: dict[str, Path] = {}
    for name, suffix in (("csv", ".csv"), ("markdown", ".md"), ("report", ".html")):
        if (text := getattr(options, name)) is None:
            continue
        path = Path(os.path.expanduser(text))
        if path.suffix.lower() != suffix:
            raise ExportError(f"{path.name}: the name of a --{name} must end in {suffix}.")
        if not os.path.isdir(path.parent):
            raise ExportError(f"The directory {path.parent} does not exist.")
        if os.path.exists(path) and not (options.force and os.path.isfile(path)):
            raise ExportError(exists(path))
        files[name] = path
    return files


def check_show(options: Namespace, verb: str) -> None:
    """Raises `UsageError` if --show is given with what makes a new study."""
    names = [f"--{name}" for name in ("devices", "backends", "steps", "name") if getattr(options, name, None)]
    names += ["--set"] * bool(options.settings) + [options.source] * bool(options.source)
    if names:
        raise UsageError(f"tuiapp {verb} --show prints a study that is there: leave out {' and '.join(names)}.")


def carry_out(
    options: Namespace, study: Study, plans: Sequence[Planned], labels: Sequence[str], machine: Machine
) -> str:
    """Queues the runs of a new study, of which each round has these labels, and follows them; returns its name.

    Raises KeyboardInterrupt once it has told what becomes of the study, and as `begin_measured`.
    """
    directory, stem = runs_dir(options), options.name or stem_of(f"{study.kind}-{subject(plans[0].config)}")
    study_dir, runs = begin_measured(replace(study, name=stem), directory, plans, options.repeat, machine)
    name = study_dir.name
    tell(f"{plural(len(runs), 'run')} queued as the group {name}, one at a time")
    try:
        follow(runs, [*labels] * options.repeat, directory)
    except KeyboardInterrupt:
        tell(f"the runs of {name} stay in the queue, and go on. Its table: tuiapp {study.kind} --show {name}")
        tell(f"To end it, what waits and what runs: tuiapp study stop {name}")
        raise
    return name


def read_study(directory: Path, name: str, kind: str) -> Study:
    """Returns the study of that name; raises StudyError if there is none, or it is of another kind."""
    study = StudyDir(directory, name).read()
    if study.kind != kind:
        text = f"There is no study {name!r} that tuiapp {kind} has made, but a {study.kind}"
        raise StudyError(f"{text}. To see it: tuiapp study show {name}")
    return study


def follow(runs: Sequence[RunDir], labels: Sequence[str], directory: Path) -> None:
    """Tells on stderr how the runs of a study go, until all have ended."""
    stages = dict.fromkeys(runs, "")
    reason, left = "", [*runs]
    while True:
        for run in left:
            info = summarise(run)
            stage = info.status if info.status in ("queued", "running") else "over"
            if stage not in (stages[run], "queued"):
                index = runs.index(run)
                tell(join_words([f"{index + 1} of {len(runs)}: {labels[index]}", *_words(info)]))
            stages[run] = stage
        left = [run for run in left if stages[run] != "over"]
        if not left:
            return
        if all(stages[run] == "queued" for run in left):
            why = _why(left[0], directory)
            # One of ours that has just ended may be named still.
            if why not in (reason, "") and not any(run.run_id in why for run in runs):
                tell(f"not started yet: {why}")
            reason = why or reason
            keep_alive(left[0])
        time.sleep(POLL_S)


def _why(run: RunDir, directory: Path) -> str:
    """Returns why a queued run waits; "" if its keeper has not looked yet."""
    waiting = read_waiting(run.waits)
    if waiting and waiting.held:
        return f"it is held; to let it start: tuiapp queue release {run.run_id}"
    return queue_trouble(directory) or outlook(directory).get(run.run_id, Outlook()).reason


def _words(info: RunInfo) -> list[str]:
    if info.status == "running":
        return ["has started", info.directory.run_id]
    summary, reason = info.summary, info.reason if info.status != "completed" else ""
    rate = f"{format_rate(summary.examples_per_second)} examples/s" if summary.examples_per_second else ""
    return [state(info), rate, format_duration(summary.seconds), reason]


def print_study(
    options: Namespace, sheet: Sheet, runs: Sequence[Measured], more: Mapping[str, object], picture: Sequence[str]
) -> int:
    """Prints the table and, on a terminal, the chart; or all as JSON. Returns the exit code."""
    if options.json:
        facts = {"title": sheet.title, **more, "rows": sheet.facts, "runs": [run_facts(run) for run in runs]}
        print_json({**facts, "notes": sheet.notes})
    else:
        width = width_of_stdout()
        print(sheet.title, "", *sheet.lines(width), sep="\n")
        if picture:
            print("", *picture, sep="\n")
        print("", *(line for note in sheet.notes for line in wrap(note, width, subsequent_indent="  ")), sep="\n")
    statuses = {run.info.status for run in runs}
    return 1 if statuses & {"failed", "lost"} else 3 if "stopped" in statuses else 0


def drawn(make: Callable[[int, int], Chart | None], x_label: str, legend: str) -> list[str]:
    """Returns a chart for the terminal, of so many columns of dots and lines of cells; nothing if stdout is none."""
    if not sys.stdout.isatty():
        return []
    around = LABEL_CELLS + len(x_label) + 4
    columns = max(LEAST_COLUMNS, min(MOST_COLUMNS, get_terminal_size().columns - around))
    chart = make(2 * columns, CHART_LINES)
    lines = [*plain_chart(chart, columns, CHART_LINES, x_label), legend] if chart and not chart.is_empty else []
    is_ascii = wants_ascii(read_settings()[0].unicode, os.environ)
    return [to_ascii(line) for line in lines] if is_ascii else lines


def plain_chart(chart: Chart, columns: int, rows: int, x_label: str) -> list[str]:
    """Returns a chart, drawn for `2 * columns` dots, in lines of at most `LEFT_CELLS + columns` cells and `x_label`."""
    *axis, line, numbers = frame(chart, columns, rows)
    curves = rasterize(chart, columns, rows).characters.tolist()
    lines = [f"{left[:LEFT_CELLS]}{''.join(map(chr, row))}".rstrip() for left, row in zip(axis, curves, strict=True)]
    return [*lines, line, f"{numbers.rstrip()}  {x_label}"]


def write_files(
    files: Mapping[str, Path], sheet: Sheet, shown: Sequence[Measured], picture: str, *, force: bool
) -> None:
    """Writes CSV, Markdown and the report where asked for; the report has the curves of `shown`."""

    def page() -> str:
        from tuiapp.library.report import read_runs
        from tuiapp.library.report_html import to_html

        runs = [run.info.directory for run in completed(shown)][:MOST]
        return to_html(read_runs(runs), time.strftime("%Y-%m-%d %H:%M:%S %Z"), sheet, picture)

    for name, text in (("csv", sheet.to_csv), ("markdown", sheet.to_markdown), ("report", page)):
        if name in files:
            with put_in_place(files[name], force=force) as temporary:
                temporary.write_text(text(), encoding="utf-8")
            print(sanitize(str(files[name])), file=sys.stderr)
