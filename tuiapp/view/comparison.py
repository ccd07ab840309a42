"""Runs side by side: the configuration keys in which they differ, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainers.config.run_config import OPTIONS
from trainers.contract.metrics import LOSS, RATE, TEST_ACCURACY, TEST_LOSS
from trainers.state.known_metrics import KNOWN, format_accuracy
from trainers.state.summary import RunInfo
from trainers.state.text import (
    MISSING,
    format_count,
    format_duration,
    sanitize,
    without_directories,
)
from tuiapp.view.run_list import state
from tuiapp.view.run_values import known_values, value_text

MOST = 8  # runs compared at once: as many colours can be distinguished


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    values: tuple[str, ...]


def differing(infos: Sequence[RunInfo]) -> list[Line]:
    """Returns the configuration keys in which runs differ; runs with an unreadable run.toml are ignored."""
    values = [known_values(info) for info in infos]
    lines = []
    for key in dict.fromkeys([*OPTIONS, *(key for known in values for key in known)]):
        texts = [value_text(known.get(key)) for known in values]
        # A key of run.toml may not apply to a run; a key that a script leaves out is a difference.
        lacks = key not in OPTIONS and any(info.facts.config and key not in info.facts.config for info in infos)
        if len({text for text in texts if text != MISSING}) + lacks > 1:
            lines.append(Line(sanitize(key), _in_words(texts)))
    return lines


def _in_words(texts: Sequence[str]) -> tuple[str, ...]:
    """Values without the directories of their paths, unless the directories are all that differs."""
    short = [without_directories(text) for text in texts]
    return tuple(sanitize(text, 60) or "not set" for text in (short if len({*short}) == len({*texts}) else texts))


_LOSS, _TEST_LOSS, _ACCURACY, _RATE = (KNOWN[name] for name in (LOSS, TEST_LOSS, TEST_ACCURACY, RATE))

_BEST_LOSS = f"best {_TEST_LOSS.label}"

_RESULTS: tuple[tuple[str, Callable[[RunInfo], str]], ...] = (
    ("state", state),
    (f"best {_ACCURACY.label}", lambda info: format_accuracy(info.best_accuracy, 2)),
    (_BEST_LOSS, lambda info: _TEST_LOSS.format(info.summary.best_loss)),
    (_TEST_LOSS.label, lambda info: _TEST_LOSS.format(info.summary.test_loss)),
    (_LOSS.label, lambda info: _LOSS.format(info.summary.loss)),
    (_RATE.label, lambda info: _RATE.format(info.summary.examples_per_second)),
    ("took", lambda info: format_duration(info.summary.seconds)),
    ("steps", lambda info: format_count(info.summary.steps)),
    ("epochs done", lambda info: format_count(None if info.summary.epochs is None else round(info.summary.epochs, 1))),
)


def results(infos: Sequence[RunInfo]) -> list[Line]:
    """Returns each run's results; the best loss of an evaluation only if some run is best by that."""
    hidden = set() if any(info.best_by == "loss" for info in infos) else {_BEST_LOSS}
    # What scripts evaluate on may be called otherwise.
    groups = {info.summary.evaluated_on for info in infos}
    group = sanitize(groups.pop(), 20) if len(groups) == 1 else "test"
    return [
        Line(name.replace("test", group), tuple(tell(info) for info in infos))
        for name, tell in _RESULTS
        if name not in hidden
    ]
