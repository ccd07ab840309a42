"""Finds the runs on this machine, and one by name.

Fast to import: reading a long journal starts as soon as the run is known.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tuiapp.trainers.contract.rundir import RUN_ID, RunDir
from tuiapp.trainers.state.text import join_words, sanitize

NAMED = 5  # runs listed in a message about an ambiguous name
SECOND = 15  # characters of a run's name: when it was launched


class UnknownRunError(LookupError):
    """No run, or more than one, has that name; the message lists the runs."""


def list_runs(runs_dir: Path) -> list[RunDir]:
    """Returns all runs in a directory, newest first; none when it does not exist."""
    return list(find_runs(runs_dir))


def find_runs(runs_dir: Path) -> Iterator[RunDir]:
    """Yields the runs of `list_runs`, looking at each only when it is wanted: the directory may be slow."""
    directories: list[os.DirEntry[str]] = []
    with contextlib.suppress(OSError), os.scandir(runs_dir) as entries:
        directories.extend(entry for entry in entries if RUN_ID.fullmatch(entry.name))
    directories.sort(key=lambda entry: entry.name, reverse=True)
    for _, of_a_second in groupby(directories, key=lambda entry: entry.name[:SECOND]):
        runs = [Path(entry.path) for entry in of_a_second if _is_directory(entry)]
        yield from map(RunDir, sorted(runs, key=_launched, reverse=True) if runs[1:] else runs)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    # One that cannot be accessed, such as a link in a circle, must not hide the others.
    with contextlib.suppress(OSError):
        return entry.is_dir()
    return False


def unreadable(runs_dir: Path) -> str:
    """Returns why a directory's runs cannot be listed, or ""; one that does not exist yet is fine."""
    try:
        with os.scandir(runs_dir):
            return ""
    except FileNotFoundError:
        return ""
    except OSError as error:
        instead = "Choose another directory with --runs-dir or TUIAPP_RUNS_DIR."
        return f"Cannot list {runs_dir}: {error.strerror}.\n{instead}"


def _launched(path: Path) -> tuple[int, str]:
    """Returns the sort key of runs whose names have the same second: the time of run.toml, which is written once."""
    try:
        written = os.stat(path / "run.toml").st_mtime_ns
    except OSError:
        written = 0
    return written, path.name


def find_run(name: str, runs_dir: Path) -> RunDir:
    """Returns the run for an id, a unique prefix of one, `latest`, a directory, or a name; raises `UnknownRunError`.

    Names are read only if no other meaning fits.
    """
    is_path = os.sep in name or name in (".", "..")
    if is_path:
        directory = RunDir(Path(os.path.expanduser(name)).absolute())
        if os.path.exists(directory.config):
            return directory
    runs = list_runs(runs_dir)
    if not runs and not is_path:
        raise UnknownRunError(
            unreadable(runs_dir) or f"There are no runs in {runs_dir} yet; start one with `tuiapp run quickstart`."
        )
    if name == "latest":
        return runs[0]
    # An empty name is what `tuiapp stop "$UNSET"` gives: it must not match the only run.
    matches = [run for run in runs if name and run.run_id.startswith(name)]
    if len(matches) == 1 or (matches and matches[-1].run_id == name):
        return matches[-1]
    from tuiapp.trainers.state.summary import run_name

    names = {run: run_name(run) for run in runs}
    called = [run for run in runs if name and names[run] == name]
    if len(called) == 1:
        return called[0]
    if called:
        raise UnknownRunError(f"{len(called)} runs have the name {name!r}: {_list(called)}. Type an id.")
    if is_path:
        raise UnknownRunError(f"{name} is not a run directory: it has no {RunDir.config.name}.")
    if matches:
        raise UnknownRunError(f"{name!r} matches {len(matches)} runs: {_list(matches)}. Type more of the id.")
    from tuiapp.trainers.config.options import suggest

    hint = suggest(name, [*filter(None, names.values()), *(run.run_id for run in runs)])
    raise UnknownRunError(f"There is no run {name!r} in {runs_dir}.{hint} `tuiapp runs` lists them.")


def weights_path(value: str, runs_dir: Path) -> str:
    """Returns a value of `init_from` as an absolute path, whether it is one or names a run; "" stays.

    Raises UnknownRunError.
    """
    from tuiapp.trainers.contract.manifest import ENDING, INDEX_ENDING

    if not value or os.sep in value or value in (".", "..") or value.endswith((ENDING, INDEX_ENDING)):
        return str(Path(os.path.expanduser(value)).absolute()) if value else ""
    return str(find_run(value, runs_dir).path.absolute())


def titled(run: RunDir) -> str:
    """Returns a run's name, if it has one, and its id."""
    from tuiapp.trainers.state.summary import run_name

    return join_words([sanitize(run_name(run), 100), sanitize(run.run_id)])


def _list(runs: list[RunDir]) -> str:
    return ", ".join([*(run.run_id for run in runs[:NAMED]), *(["…"] if len(runs) > NAMED else [])])
