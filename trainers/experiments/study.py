"""A study: runs that go through values of some keys, by a grid or a search; or over devices or backends, to compare.

Its runs are those of the group with its name. What was asked for is `studies/NAME/study.json` in the directory of runs;
a search keeps its trials beside it, in Optuna's own journal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, write_atomically
from tuiapp.trainers.config.options import shown, suggest
from tuiapp.trainers.config.run_config import RunConfig, build_config
from tuiapp.trainers.contract.lock import alone
from tuiapp.trainers.contract.rundir import RunDir, find_run_dirs
from tuiapp.trainers.contract.sidecars import (
    MAX_TAG_CHARACTERS,
    MAX_WAITING_BYTES,
    decode_exact,
    encode_exact,
    read_about,
)
from tuiapp.trainers.experiments.space import Axis, read_axis

if TYPE_CHECKING:
    from tuiapp.trainers.state.objective import Objective
    from tuiapp.trainers.state.summary import RunInfo

NAME = re.compile(rf"(?![.-])[A-Za-z0-9._-]{{1,{MAX_TAG_CHARACTERS}}}")
NAME_RULE = f"1 to {MAX_TAG_CHARACTERS} letters, digits, '.', '_' or '-', the first one no '.' or '-'"
STUDIES = "studies"

Kind: TypeAlias = Literal["grid", "search", "scale", "shootout"]
Sampler: TypeAlias = Literal["tpe", "random"]
Pruner: TypeAlias = Literal["median", "hyperband", "none"]


class StudyError(Exception):
    """There is no such study, or what is asked of it is not possible; the message says why."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How a search goes about it."""

    trials: int
    """How many it makes, those that failed included."""
    parallel: int = 1
    """How many of its runs wait or run at a time."""
    sampler: Sampler = "tpe"
    pruner: Pruner = "median"
    storage: str = ""
    """URL of a database of Optuna's; "" for the journal in the study's directory."""


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    name: str = ""
    kind: Kind | Literal["sweep"] = "sweep"
    """A sweep is a grid or a search."""
    axes: dict[str, str] = {}
    """Key → what it goes through: see `tuiapp.trainers.experiments.space`."""
    config: dict[str, object] = {}
    """The configuration that all runs have in common."""
    search: Search | None = None
    """How trials are searched; None if every combination is a run."""
    weak: bool = False
    """Whether a scaling study's global batch grows with the devices."""
    order: list[str] = []
    """A shoot-out's backends, the one first that the others are compared with."""
    left_out: dict[str, str] = {}
    """Backend → why it cannot run here."""
    metric: str = ""
    """What its runs are best by; "" for what they suggest."""
    rises: bool = False
    tags: tuple[str, ...] = ()
    priority: int = 0
    retry: int = 0
    parallel: int = 0
    """How many of a grid's runs Slurm may have at a time; 0 for any number."""
    created: float = msgspec.field(default_factory=time.time)
    stopped: bool = False
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """The environment of whoever asked for a search, until that has ended: its runs start in it."""
    directory: str = "/"

    def __post_init__(self) -> None:
        if self.kind == "sweep":
            msgspec.structs.force_setattr(self, "kind", "search" if self.search else "grid")

    @property
    def base(self) -> RunConfig:
        """Raises ConfigError."""
        return build_config(self.config, f"study {self.name}")

    def read_axes(self) -> list[Axis]:
        """Raises ConfigError."""
        base = self.base
        values = {key: getattr(base, key) for key in base.__struct_fields__}
        return [read_axis(values, key, text, draws=self.search is not None) for key, text in self.axes.items()]

    @property
    def objective(self) -> Objective | None:
        # Imported late, as in `infos`: the form's first picture does without.
        from tuiapp.trainers.state.objective import Objective

        return Objective(self.metric, self.rises) if self.metric else None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a search ended."""

    reason: str
    failed: bool = False


class StudyDir:
    """The files of a study. Creating the object touches nothing."""

    def __init__(self, runs_dir: Path, name: str) -> None:
        self.runs_dir, self.name = runs_dir, name
        self.path = runs_dir / STUDIES / name
        self.file = self.path / "study.json"
        self.journal = self.path / "journal.log"
        """Optuna's, which `optuna-dashboard` opens."""
        self.lock = self.path / "lock"
        """Locked by the search."""
        self.log = self.path / "search.log"
        self.ended = self.path / "ended.json"
        """There once a search has ended: see `Ended`."""

    def read(self) -> Study:
        """Raises StudyError."""
        try:
            if not NAME.fullmatch(self.name):
                raise FileNotFoundError
            text = read_limited(self.file, MAX_WAITING_BYTES)
            return msgspec.structs.replace(decode_exact(text, Study), name=self.name)
        except (FileNotFoundError, NotADirectoryError):
            names = [study.name for study in find_studies(self.runs_dir)]
            hint = suggest(self.name, names) or (f" There are {', '.join(names[:20])}." if names else "")
            raise StudyError(f"There is no study {shown(self.name)}.{hint}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise StudyError(f"{self.file} cannot be read: {error}.") from None

    def exists(self) -> bool:
        """Whether there is such a study, readable or not."""
        return bool(NAME.fullmatch(self.name)) and os.path.lexists(self.file)

    def change(self, **fields: object) -> Study:
        """Changes what was asked for, whoever else does so at the same time; raises StudyError."""
        with self.alone():
            study = msgspec.structs.replace(self.read(), **fields)
            self.write(study)
        return study

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps others from changing the study, or queueing runs of it, meanwhile; raises StudyError."""
        self.read()
        try:
            with alone(self.path):
                yield
        except OSError as error:
            raise StudyError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    def write(self, study: Study) -> None:
        """Raises OSError."""
        write_atomically(self.file, encode_exact(study))

    def is_searched(self) -> bool:
        """Whether it is a search that has not ended; False if its file cannot be read."""
        if self.ended.exists():
            return False
        try:
            return self.read().search is not None
        except StudyError:
            return False

    def how_it_ended(self) -> Ended | None:
        """Returns how a search ended; None if it has not."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            return msgspec.json.decode(read_limited(self.ended, MAX_WAITING_BYTES), type=Ended)
        return None

    def runs(self) -> list[RunDir]:
        """Returns the study's runs, the oldest first."""
        return runs_of_group(self.runs_dir, self.name)

    def infos(self) -> list[RunInfo]:
        """Returns the study's runs, with what is known of each."""
        from tuiapp.trainers.state.summary import summarise

        return [summarise(run) for run in self.runs()]


def runs_of_group(runs_dir: Path, group: str) -> list[RunDir]:
    """Returns the runs of a directory that belong to a group, the oldest first."""
    return [run for run in find_run_dirs(runs_dir) if read_about(run)[0].group == group]


def find_studies(runs_dir: Path) -> list[StudyDir]:
    """Returns the studies of all kinds, by name."""
    try:
        with os.scandir(runs_dir / STUDIES) as entries:
            names = sorted(entry.name for entry in entries if NAME.fullmatch(entry.name))
    except OSError:
        return []
    return [study_dir for name in names if (study_dir := StudyDir(runs_dir, name)).exists()]


def make_study(runs_dir: Path, study: Study) -> StudyDir:
    """Makes the directory of a new study; a name that ends with `-` gets the next free number. Raises StudyError."""
    numbered = study.name.endswith("-")
    if not NAME.fullmatch(f"{study.name}1" if numbered else study.name):
        raise StudyError(f"{shown(study.name)} is no name of a study: use {NAME_RULE}.")
    groups = {read_about(run)[0].group for run in find_run_dirs(runs_dir)}
    directory = runs_dir / STUDIES
    try:
        make_private(directory)
        with TemporaryDirectory(prefix=".new-", dir=directory) as hidden:
            new = Path(hidden, "study")
            new.mkdir(mode=0o700)
            write_atomically(new / "study.json", encode_exact(study))
            number = 0
            while True:
                number += 1
                study_dir = StudyDir(runs_dir, f"{study.name}{number}" if numbered else study.name)
                if study_dir.name not in groups and _rename(new, study_dir.path):
                    return study_dir
                if not numbered:
                    text = f"There is a study or group {study.name!r} already: choose another --name"
                    raise StudyError(f"{text}, or see it by tuiapp study show {study.name}.")
    except OSError as error:
        raise StudyError(f"Cannot write {directory}: {error.strerror or error}.") from error


def _rename(directory: Path, target: Path) -> bool:
    """Returns False if there is something of that name; an empty directory is nothing. Raises OSError."""
    try:
        os.rename(directory, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def stem_of(source: str) -> str:
    """Returns what a study is called after, but for its number, by the preset or file that it begins with."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(source.rstrip("/"))).strip("-.")
    return f"{stem.removesuffix('.toml').removesuffix('.py')[:24] or 'sweep'}-"


def lacks_optuna() -> str:
    """Returns why there can be no search here; "" if there can."""
    return "" if find_spec("optuna") else "a search needs Optuna: pip install 'tuiapp[sweep]'."
