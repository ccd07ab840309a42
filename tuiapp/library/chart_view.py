"""How the user last chose to see charts and runs: `tuiapp/charts.json` in the user's state directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tuiapp.trainers.config.files import make_private, read_limited, user_state, write_atomically
from tuiapp.trainers.config.options import shown
from tuiapp.trainers.config.run_config import OPTIONS, SCHEMA, RunConfig
from tuiapp.trainers.state.objective import Objective, Objectives, objective_of
from tuiapp.trainers.state.series import SMOOTHINGS
from tuiapp.trainers.state.summary import RunInfo
from tuiapp.view.draft import to_texts

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
    """How ranks are drawn, by metric; of others as tells most."""
    objective: str = ""
    """What runs are best by, as in the journal; "" until the user chooses it."""
    rises: bool = True
    """Whether more of that is better."""
    added: tuple[str, ...] = ()
    """Columns of the list of runs beside those that tell its runs apart."""
    removed: tuple[str, ...] = ()
    """Columns that it never has."""
    sort: str = ""
    """The column that it is sorted by; "" until the user chooses one."""
    reverse: bool = False
    folded: bool = True
    """Whether each of its groups is one row."""
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
    try:
        return msgspec.json.decode(read_limited(view_path(), MAX_FILE_BYTES), type=ChartView), ""
    except FileNotFoundError:
        return ChartView(), ""
    except OSError as error:
        return ChartView(), error.strerror or str(error)
    except (ValueError, RecursionError) as error:  # too long, not UTF-8, no JSON, or of other types
        return ChartView(), str(error)


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
    view, path = read_view()[0], view_path()
    make_private(path.parent)
    write_atomically(path, msgspec.json.encode(msgspec.structs.replace(view, **changes)))


MAX_FORM_BYTES = 64 * 1024


class LastForm(msgspec.Struct, frozen=True, kw_only=True):
    """The preset that was loaded, and the texts of all keys that differ from the defaults."""

    schema: int = SCHEMA
    preset: str = ""
    """"" for the defaults, or a run's configuration."""
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
    """Reads it; None if there is none, or with why if it cannot be used."""
    try:
        last = msgspec.json.decode(read_limited(form_path(), MAX_FORM_BYTES), type=LastForm)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, error.strerror or str(error)
    except (ValueError, RecursionError) as error:  # too long, not UTF-8, no JSON, or of other types
        return None, str(error)
    if last.schema != SCHEMA:
        return None, f"it is of schema {last.schema}, and this version of tuiapp reads schema {SCHEMA}"
    if unknown := next((key for key in last.changes if key not in OPTIONS), ""):
        return None, f"it has a key {shown(unknown)} that this version of tuiapp does not know"
    return last, ""


def write_last_form(last: LastForm) -> None:
    """Writes it atomically, as private as a run's configuration. Raises OSError."""
    path = form_path()
    make_private(path.parent)
    write_atomically(path, msgspec.json.encode(last))
