"""What all actions share: the question and the outcome, why a run refuses, and which runs are meant."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.library.find import UnknownRunError, find_run, list_runs
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.options import ConfigError, suggest
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import read_about
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.trainers.state.text import plural
from tuiapp.view.run_list import choose, unknown_names
from tuiapp.view.run_values import Comparison

Severity: TypeAlias = Literal["information", "warning", "error"]

NAMED = 6
"""Most lines that a question or a notice lists."""


class ActionError(Exception):
    """An action was not done; the message gives the reason and what to do."""


class Question(NamedTuple):
    title: str
    text: str
    answers: Sequence[tuple[str, str, str]]
    """Id, label and variant (default, primary, error, warning) of each; the first is focused."""


@dataclass(slots=True)
class Outcome:
    done: list[RunDir] = field(default_factory=list)
    """The runs to which the action was done."""
    notes: list[tuple[Severity, str]] = field(default_factory=list)

    def say(self, text: str, severity: Severity = "information") -> None:
        """Adds a note: what was done, what was done otherwise, or why something was not."""
        self.notes.append((severity, text))

    def of(self, severity: Severity) -> list[str]:
        """Returns the notes of a severity."""
        return [text for kind, text in self.notes if kind == severity]


def each(
    runs: Iterable[RunDir],
    do: Callable[[RunDir], str | None],
    severity: Severity = "information",
    error: type[Exception] = ActionError,
) -> Outcome:
    """Does something to each of runs, and notes with a severity what `do` says of it, if anything.

    Where it was not done `do` raises an `error`, which is noted, too, and does not keep the others.
    """
    outcome = Outcome()
    for run in runs:
        try:
            text = do(run)
        except error as problem:
            outcome.say(str(problem), "error")
        else:
            outcome.done.append(run)
            if text:
                outcome.say(text, severity)
    return outcome


def some(lines: Sequence[str], between: str = "\n") -> str:
    """Returns the first lines, and how many more there are."""
    remainder = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return between.join([*lines[:NAMED], *remainder])


def unreadable(info: RunInfo) -> str:
    """Says why nothing can be done with what a run has recorded; "" if it can."""
    return "" if info.is_readable else f"It cannot be read: {info.problem}"


def no_configuration(info: RunInfo) -> str:
    """Says why a listed run's configuration is not known; "" if it is."""
    return "" if info.config else f"Its configuration cannot be read: {info.problem}"


def configuration(run: RunDir) -> RunConfig:
    """Returns a run's configuration; raises ActionError if it cannot be read."""
    try:
        return read_config(run)
    except (ConfigError, OSError) as error:
        raise ActionError(f"Its configuration cannot be read: {error}") from error


def is_script(info: RunInfo) -> bool:
    """Whether a run is of a user's script."""
    return info.config is not None and not BACKENDS[info.config.backend].builtin


def select(selectors: Sequence[str], runs_dir: Path) -> list[RunDir]:
    """Returns the runs that words mean, each once, in their order; raises UnknownRunError for one that means none.

    A word is what `find_run` takes, a group's name, or a filter as in the list of runs with at least one comparison
    (`tag:sweep`, `state:failed`, `lr<0.01`). All filters hold together, as there.
    """
    runs, filters = list[RunDir](), list[str]()
    for word in selectors:
        try:
            run = find_run(word, runs_dir)
        except UnknownRunError as error:
            groups = groups_of(runs_dir)
            if word in groups:
                runs += groups[word]
            elif any(map(Comparison.of, word.split())):
                filters.append(word)
            else:
                raise UnknownRunError(f"{error}{suggest(word, groups)}") from None
        else:
            # An id or a directory means nothing else, a name may be a group's, too.
            is_name = os.sep not in word and word != "latest" and not run.run_id.startswith(word)
            if is_name and word in groups_of(runs_dir):
                raise UnknownRunError(f"{word!r} is a run's name and a group's: type its id, or group:{word}.")
            runs.append(run)
    if filters:
        runs += _filtered(" ".join(filters), runs_dir)
    return list(dict.fromkeys(runs))


def groups_of(runs_dir: Path) -> dict[str, list[RunDir]]:
    """Returns the groups of a directory's runs, each newest first."""
    groups: dict[str, list[RunDir]] = {}
    for run in list_runs(runs_dir):
        if name := read_about(run)[0].group:
            groups.setdefault(name, []).append(run)
    return groups


def _filtered(text: str, runs_dir: Path) -> list[RunDir]:
    infos = RunIndex(runs_dir).read_all()
    if vague := [
        word for word in text.split() if (comparison := Comparison.of(word)) is not None and not comparison.value
    ]:
        raise UnknownRunError(f"{vague[0]!r} is no filter: it says not what to compare with.")
    if unknown := unknown_names(infos, text):
        raise UnknownRunError(f"runs cannot be compared so: {' '.join(unknown)}")
    if not (matches := choose(infos, text)):
        raise UnknownRunError(f"None of {plural(len(infos), 'run')} matches {text!r}. `tuiapp runs` lists them.")
    return [info.directory for info in matches]
