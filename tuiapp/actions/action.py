"""What an action asks, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import RunInfo

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
    """The runs to which it was done."""
    notes: list[tuple[Severity, str]] = field(default_factory=list)

    def say(self, text: str, severity: Severity = "information") -> None:
        """Adds a note: what was done, what was done otherwise, or why something was not."""
        self.notes.append((severity, text))

    def of(self, severity: Severity) -> list[str]:
        """Returns the notes of a severity."""
        return [text for one, text in self.notes if one == severity]


def some(lines: Sequence[str], between: str = "\n") -> str:
    """Returns the first lines, and how many more there are."""
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return between.join([*lines[:NAMED], *more])


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
