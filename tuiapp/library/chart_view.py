"""What the user chose last, in the user's state directory under `tuiapp`.

`charts.json` has how charts and runs are seen, `form.json` the form of Configure. A damaged file is as a missing one,
but that readers are told why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, user_state, write_atomically
from tuiapp.trainers.config.options import shown
from tuiapp.trainers.config.run_config import OPTIONS, SCHEMA, RunConfig
from tuiapp.trainers.state.objective import Objective, Objectives, objective_of
from tuiapp.trainers.state.series import SMOOTHINGS
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.view.draft import to_texts

Kept = TypeVar("Kept")

MAX_FILE_BYTES = 64 * 1024

MOST_NAMES = 200
"""Most columns, and most groups, that are kept: the newest ones."""


class ChartView(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a chart, as in `ChartOptions`, and of the list of runs."""

    metric: str = ""
    """The metric's name in the journal; "" until the user chooses one. A run without it shows another."""
    pinned: tuple[str, ...] = ()
    """Metrics that the Run screen has charts of, after the first, in runs that report them."""
    axis: Literal["step", "time"] = "step"
    smoothing: float = 0.6
    log: bool = False
    forms: dict[str, Literal["lines", "band", "heat"]] = {}
    """How ranks are drawn, by metric; a metric that is missing is drawn as tells most."""
    objective: str = ""
    """What runs are best by, as in the journal; "" until the user chooses it."""
    rises: bool = True
    """Whether a higher `objective` is better."""
    added: tuple[str, ...] = ()
    """Columns of the list of runs beside those that tell its runs apart."""
    removed: tuple[str, ...] = ()
    """Columns that the list of runs never has."""
    sort: str = ""
    """The column that the list of runs is sorted by; "" until the user chooses one."""
    reverse: bool = False
    folded: bool = True
    """Whether each group of the list of runs is one row."""
    opened: tuple[str, ...] = ()
    """Keys of the groups that are open nevertheless."""
    baseline: str = ""
    """Directory of the run that others are compared with; "" for none."""

    charts: bool = True
    """Whether the list of runs has charts where there is room for both."""
    beside: tuple[str, ...] = ()
    """Metrics of those charts after the first, which has the objective; "" for what the runs suggest."""

    def __post_init__(self) -> None:
        if self.smoothing not in SMOOTHINGS:
            raise ValueError(f"smoothing = {self.smoothing:g} is not one of {', '.join(f'{s:g}' for s in SMOOTHINGS)}")


def view_path() -> Path:
    """Returns the file; it may be missing."""
    return user_state() / "charts.json"


def read_view() -> tuple[ChartView, str]:
    """Reads the view; the defaults, and why, if the file is damaged."""
    view, problem = _read(view_path(), ChartView)
    return view or ChartView(), problem


def chosen_objective(infos: Sequence[RunInfo]) -> Objective | None:
    """Returns what runs are best by, as the user chose or as they suggest; None if they have no results."""
    view = read_view()[0]
    return objective_of(infos, view.objective, rises=view.rises)


def chosen_objectives(infos: Sequence[RunInfo]) -> Objectives:
    """Returns the chosen objective of each kind of data."""
    view = read_view()[0]
    return Objectives.of_runs(infos, view.objective, rises=view.rises)


def change_view(changes: dict[str, object]) -> None:
    """Writes some of the settings atomically; a damaged file is replaced. Raises OSError."""
    _write(view_path(), msgspec.structs.replace(read_view()[0], **changes))


class LastForm(msgspec.Struct, frozen=True, kw_only=True):
    """The preset that was loaded, and the texts of all keys that differ from the defaults."""

    schema: int = SCHEMA
    preset: str = ""
    """The preset's name; "" for the defaults, or a run's configuration."""
    changes: dict[str, str] = {}

    @property
    def texts(self) -> dict[str, str]:
        """Every key's text."""
        return {**to_texts(RunConfig()), **self.changes}


def last_form(preset: str, texts: Mapping[str, str]) -> LastForm:
    """Returns what is to be kept of a form: the keys, not what the next run has of its own."""
    kept = {key: texts[key] for key, default in to_texts(RunConfig()).items() if texts[key] != default}
    return LastForm(preset=preset, changes=kept)


def form_path() -> Path:
    """Returns the file; it may be missing."""
    return user_state() / "form.json"


def read_last_form() -> tuple[LastForm | None, str]:
    """Reads the last form; None if there is none, or with why if it cannot be used."""
    last, problem = _read(form_path(), LastForm)
    if last is None:
        return None, problem
    if last.schema != SCHEMA:
        return None, f"it is of schema {last.schema}, and this version of tuiapp reads schema {SCHEMA}"
    if unknown := next((key for key in last.changes if key not in OPTIONS), ""):
        return None, f"it has a key {shown(unknown)} that this version of tuiapp does not know"
    return last, ""


def write_last_form(last: LastForm) -> None:
    """Writes the last form atomically, as private as a run's configuration. Raises OSError."""
    _write(form_path(), last)


def _read(path: Path, kind: type[Kept]) -> tuple[Kept | None, str]:
    """Returns what a file has; None if it is missing, or with why if it is damaged."""
    try:
        return msgspec.json.decode(read_limited(path, MAX_FILE_BYTES), type=kind), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, error.strerror or str(error)
    except (ValueError, RecursionError) as error:  # too long, not UTF-8, no JSON, or of other types
        return None, str(error)


def _write(path: Path, value: msgspec.Struct) -> None:
    make_private(path.parent)
    write_atomically(path, msgspec.json.encode(value))
