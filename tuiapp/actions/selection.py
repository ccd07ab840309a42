"""Which runs are meant: by id, a unique prefix of one, `latest`, directory or name, by group, or by a filter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tuiapp.library.find import UnknownRunError, find_run, list_runs
from tuiapp.library.run_index import RunIndex
from tuiapp.trainers.config.options import suggest
from tuiapp.trainers.contract.about import read_about
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.text import plural
from tuiapp.view.run_list import choose, unknown_names
from tuiapp.view.run_values import Comparison


def select(words: Sequence[str], runs_dir: Path) -> list[RunDir]:
    """Returns the runs that words mean, each once, in their order; raises UnknownRunError for one that means none.

    A word is what `find_run` takes, a group's name, or a filter as in the list of runs with at least one comparison
    (`tag:sweep`, `state:failed`, `lr<0.01`). All filters hold together, as there.
    """
    found, filters = list[RunDir](), list[str]()
    for word in words:
        try:
            run = find_run(word, runs_dir)
        except UnknownRunError as error:
            groups = groups_of(runs_dir)
            if word in groups:
                found += groups[word]
            elif any(map(Comparison.of, word.split())):
                filters.append(word)
            else:
                raise UnknownRunError(f"{error}{suggest(word, groups)}") from None
        else:
            # An id or a directory means nothing else, a name may be a group's, too.
            is_name = os.sep not in word and word != "latest" and not run.run_id.startswith(word)
            if is_name and word in groups_of(runs_dir):
                raise UnknownRunError(f"{word!r} is a run's name and a group's: type its id, or group:{word}.")
            found.append(run)
    if filters:
        found += _filtered(" ".join(filters), runs_dir)
    return list(dict.fromkeys(found))


def groups_of(runs_dir: Path) -> dict[str, list[RunDir]]:
    """Returns the groups of a directory's runs, each newest first."""
    groups: dict[str, list[RunDir]] = {}
    for run in list_runs(runs_dir):
        if name := read_about(run)[0].group:
            groups.setdefault(name, []).append(run)
    return groups


def _filtered(text: str, runs_dir: Path) -> list[RunDir]:
    infos = RunIndex(runs_dir).read_all()
    if vague := [word for word in text.split() if (one := Comparison.of(word)) is not None and not one.value]:
        raise UnknownRunError(f"{vague[0]!r} is no filter: it says not what to compare with.")
    if unknown := unknown_names(infos, text):
        raise UnknownRunError(f"runs cannot be compared so: {' '.join(unknown)}")
    if not (found := choose(infos, text)):
        raise UnknownRunError(f"None of {plural(len(infos), 'run')} matches {text!r}. `tuiapp runs` lists them.")
    return [info.directory for info in found]
