"""What a report says of runs: read from their journals by way of the digests, as Compare reads them."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tuiapp.library.chart_view import chosen_objective
from tuiapp.trainers.config.files import read_limited
from tuiapp.trainers.config.run_config import OPTIONS
from tuiapp.trainers.config.secrets import mask_words
from tuiapp.trainers.contract.events import Alert, Media
from tuiapp.trainers.contract.media import read_media
from tuiapp.trainers.contract.metrics import TEST_EXAMPLES, held_out_of
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.known_metrics import is_bookkeeping, ordered
from tuiapp.trainers.state.media import shown_at
from tuiapp.trainers.state.messages import describe_failure, failure_lines
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.snapshot import read_run
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import MISSING, format_bytes, format_fact, sanitize
from tuiapp.view.comparison import NOT_SET, compared, results, row_name
from tuiapp.view.figure import draw_figure
from tuiapp.view.groups import RunGroup, runs_of
from tuiapp.view.run_list import objective_words, state
from tuiapp.view.run_values import default_keys, known_values, value_text

MAX_ENVIRONMENT_BYTES = 1 << 20
MAX_ALERTS = 50  # the last ones
MOST_BESIDE = 4  # runs that stand beside each other in a table
MAX_MEDIA_BYTES = 8 << 20  # of a run: a page that a mail may carry

Rows = list[tuple[str, tuple[str, ...]]]
"""A table: a name, and a value per run."""


@dataclass(slots=True)
class Reported:
    """One run of a report; all texts are sanitized."""

    index: int
    letter: str
    info: RunInfo
    state: RunState = field(default_factory=RunState)
    curves: Curves = field(default_factory=lambda: Curves(by_rank=False))

    @property
    def run_id(self) -> str:
        return sanitize(self.info.directory.run_id)

    @property
    def title(self) -> str:
        """The name that the user or its script gave it, or its id."""
        return sanitize(self.info.name, 100) or self.state.name or self.run_id

    @property
    def heading(self) -> str:
        """The heading of the run's column: its letter, and its name if it has one."""
        return f"{self.letter} {self.title}" if self.title != self.run_id else self.letter

    @property
    def status(self) -> str:
        return state(self.info)

    @property
    def started(self) -> str:
        try:
            return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(self.info.started))
        except (OverflowError, ValueError, OSError):
            return MISSING

    @property
    def remarks(self) -> list[str]:
        """Why the run ended, and what is missing of it."""
        reason = self.info.reason if self.info.status != "completed" else ""
        texts = [reason, self.state.gaps.words, self.info.problem]
        return [sanitize(remark) for remark in texts if remark]

    @property
    def alerts(self) -> list[Alert]:
        """The last warnings and errors."""
        return [alert for alert in self.state.alerts if alert.severity != "info" and not alert.ended][-MAX_ALERTS:]

    @property
    def failure(self) -> tuple[str, list[str]] | None:
        """The first cause in a sentence, and its traceback, or the last lines of stderr."""
        first = self.state.first_failure
        if first is None:
            return None
        return describe_failure(first), failure_lines(first)

    @property
    def media(self) -> list[tuple[Media, bytes]]:
        """The last picture or text of each name and rank, as far as they are small enough to be in a page."""
        files, room = list[tuple[Media, bytes]](), MAX_MEDIA_BYTES
        for medium in shown_at(self.state.media, None):
            with suppress(OSError):
                data = read_media(self.info.directory.media, medium.file)
                if len(data) <= room:
                    room -= len(data)
                    files.append((medium, data))
        return files

    @property
    def summary(self) -> list[tuple[str, str]]:
        """What the run's script says of the result."""
        return [(sanitize(key, 60), format_fact(value)) for key, value in self.state.facts.summary.items()]


def read_runs(runs: Sequence[RunDir]) -> list[Reported]:
    """Reads runs for a report, in order."""
    return [_read(index, run) for index, run in enumerate(runs)]


def _read(index: int, run: RunDir) -> Reported:
    report = Reported(index, chr(ord("a") + index), summarise(run))
    if not report.info.is_readable:
        return report
    report.state = read_run(run)
    report.curves = report.state.curves.joined()
    report.info = replace(report.info, facts=report.state.facts)
    return report


def figures(runs: Sequence[Reported], *, standalone: bool = False) -> list[tuple[str, str]]:
    """Returns metric and SVG of each figure, in the order in which metrics are offered."""
    drawn = [(run.letter, run.index, run.curves) for run in runs]
    names = ordered({name for run in runs for name in run.curves.names})
    beside = {held_out for name in names if (held_out := held_out_of(name, names))} | {TEST_EXAMPLES}
    shown = [name for name in names if name not in beside and not is_bookkeeping(name)]
    pictures = ((name, draw_figure(drawn, name, standalone=standalone)) for name in shown)
    return [(name, picture) for name, picture in pictures if picture]


def result_rows(runs: Sequence[Reported]) -> Rows:
    """Returns state and results of each run."""
    rows = [("started", tuple(run.started for run in runs))]
    rows += [(line.name, line.values) for line in results([run.info for run in runs])]
    return [(name, values) for name, values in rows if any(value != MISSING for value in values)]


def group_rows(runs: Sequence[Reported]) -> tuple[Rows, list[str]]:
    """Returns what runs that differ in their seed alone came to, mean and deviation, and headings with their letters.

    Runs that are in no such group stand beside them; without one nothing is returned.
    """
    rows = compared([run.info for run in runs])
    if not any(isinstance(row, RunGroup) and row.is_alike for row in rows):
        return [], []
    letters = {run.info.directory: run.letter for run in runs}
    heads = [f"{' '.join(letters[info.directory] for info in runs_of(row))} {row_name(row)}" for row in rows]
    results_by_name = [(line.name, line.values) for line in results(rows)]
    return [(name, values) for name, values in results_by_name if any(value != MISSING for value in values)], heads


def turned(rows: Rows, heads: Sequence[str]) -> tuple[Rows, Sequence[str]]:
    """Returns a table and its headings, with a row for each run where they are many."""
    if len(heads) <= MOST_BESIDE or not rows:
        return rows, heads
    by_run = [(head, tuple(values[index] for _, values in rows)) for index, head in enumerate(heads)]
    return by_run, [name for name, _ in rows]


def best_words(runs: Sequence[Reported]) -> str:
    """Says which of several runs is best, and by what; "" if none is better than another."""
    infos = [run.info for run in runs]
    objective = chosen_objective(infos)
    best = objective.best(infos) if objective else None
    if objective is None or best is None:
        return ""
    return f"★ {next(run.heading for run in runs if run.info is best)}: {objective_words(objective, infos)}"


def config_rows(runs: Sequence[Reported]) -> tuple[Rows, Rows, Rows]:
    """Returns the configuration: the keys in which the runs differ, those that are the same in all, and the defaults.

    These are what is the same and nobody has set, of a script's library. A key of run.toml that is empty by default,
    and in all runs, is left out.
    """
    unset = frozenset[str].intersection(*(default_keys(run.info) for run in runs))
    values = [known_values(run.info) for run in runs]
    differing, same, defaults = Rows(), Rows(), Rows()
    for key in dict.fromkeys(key for value in values for key in value):
        texts = tuple(sanitize(value_text(value.get(key)), 300) or NOT_SET for value in values)
        if {*texts} == {NOT_SET} and key in OPTIONS and not OPTIONS[key].default:
            continue
        kind = differing if len(set(texts)) > 1 else defaults if key in unset else same
        kind.append((sanitize(key, 60), texts))
    return differing, same, defaults


def environment_rows(runs: Sequence[Reported]) -> Rows:
    """Returns versions, machine, devices and command line of each run, as its directory has them."""
    environments = [_environment(run.info.directory) for run in runs]
    keys = dict.fromkeys(key for environment in environments for key in environment)
    return [(key, tuple(environment.get(key, MISSING) for environment in environments)) for key in keys]


def whose(run: Reported, alone: bool) -> str:
    """Returns what a heading adds where there are several runs: " of a"."""
    return "" if alone else f" of {run.letter}"


def _environment(run: RunDir) -> dict[str, str]:
    try:
        environment = json.loads(read_limited(run.environment, MAX_ENVIRONMENT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(environment, dict):
        return {}
    memory, gpus, command_line = (environment.get(key) for key in ("memory_total_bytes", "gpus", "command_line"))
    names = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    versions = environment.get("versions")
    texts = {
        "host": environment.get("host"),
        "platform": environment.get("platform"),
        "CPU cores": environment.get("cpu_cores"),
        "memory": format_bytes(memory) if isinstance(memory, int | float) else None,
        "GPUs": ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)),
        "driver": environment.get("driver"),
        "Python": environment.get("python"),
        **(versions if isinstance(versions, dict) else {}),
        "command line": shlex.join(mask_words(map(str, command_line))) if isinstance(command_line, list) else None,
        "working directory": environment.get("working_directory"),
        "git commit": environment.get("git_commit"),
    }
    return {sanitize(str(key), 60): sanitize(str(text), 300) for key, text in texts.items() if text not in (None, "")}
