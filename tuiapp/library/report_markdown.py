"""A report as Markdown: tables, and figures as SVG files beside it, since GitHub and others drop inline images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from tuiapp.library.report import (
    Reported,
    Rows,
    best_words,
    config_rows,
    environment_rows,
    group_rows,
    result_rows,
    turned,
    whose,
)
from tuiapp.trainers.state.known_metrics import metric
from tuiapp.trainers.state.text import format_clock, sanitize

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>|#~$&!])")


def to_markdown(runs: Sequence[Reported], written: str, pictures: Sequence[tuple[str, str]]) -> str:
    """Returns the text of a report; `pictures` has metric and path of each figure."""
    alone = len(runs) == 1
    letters = [] if alone else [run.heading for run in runs]
    differing, same, defaults = config_rows(runs)
    parts = [f"# {_text(runs[0].title if alone else f'{len(runs)} runs')}"]
    parts += ["\n".join(f"{'- ' if not alone else ''}{_heading(run, alone)}" for run in runs)]
    parts += ["## Result", _table(result_rows(runs), letters), _text(best_words(runs))]
    if (groups := group_rows(runs))[0]:
        parts += ["## Groups, by seed", _table(*groups)]
    for run in runs:
        if run.summary:
            parts += [f"## Summary{whose(run, alone)}", _table([(key, (text,)) for key, text in run.summary], [])]
        if run.failure is not None:
            sentence, lines = run.failure
            parts += [f"## Failure{whose(run, alone)}", _text(sentence), "\n".join(f"    {line}" for line in lines)]
    parts += ["## Curves", "\n".join(f"![{_text(metric(name).label)}]({quote(path)})" for name, path in pictures)]
    if alone or differing:
        title = "Configuration" if alone else "Configuration keys that differ"
        parts += [f"## {title}", _table(differing or same, letters)]
    if not alone:
        parts += ["## Configuration keys that are the same", _table([(key, some[:1]) for key, some in same], [])]
    if defaults:
        parts += [f"{len(defaults)} further keys have their library's defaults."]
    parts += ["## Environment", _table(environment_rows(runs), letters)]
    for run in runs:
        if run.alerts:
            lines = [f"- {format_clock(alert.time)} {_text(sanitize(alert.text))}" for alert in run.alerts]
            parts += [f"## Alerts{whose(run, alone)}", "\n".join(lines)]
    return "\n\n".join(part for part in [*parts, f"Written {_text(written)}."] if part) + "\n"


def _heading(run: Reported, alone: bool) -> str:
    names = [] if alone and run.title == run.run_id else [run.run_id]
    if not alone:
        names = [f"{run.letter}:", *([run.title] if run.title != run.run_id else []), *names]
    return _text(" ".join([*names, run.status]) + (f" ({' · '.join(run.remarks)})" if run.remarks else ""))


def _table(rows: Rows, letters: Sequence[str]) -> str:
    if not rows:
        return ""
    rows, letters = turned(rows, letters)
    columns = letters or [""] * max(len(values) for _, values in rows)
    sides = ["---", *["---:" if letters else "---"] * len(columns)]
    lines = [["", *map(_text, columns)], sides, *([_text(name), *map(_text, some)] for name, some in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _text(text: str) -> str:
    return _PUNCTUATION.sub(r"\\\1", text)
