"""`tuiapp compare`: the keys in which runs differ, and their results."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from string import ascii_lowercase

from tuiapp.actions.action import groups_of
from tuiapp.library.export import with_facts
from tuiapp.trainers.config.options import suggest
from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.summary import RunInfo, summarise
from tuiapp.trainers.state.text import join_words, plural, sanitize
from tuiapp.verbs.facts import group_facts, list_facts
from tuiapp.verbs.output import UsageError, aligned, print_json, tell
from tuiapp.verbs.sources import runs_dir, runs_of
from tuiapp.view.comparison import Line, differing, objective_line, results
from tuiapp.view.groups import Row, RunGroup, fold, has_best
from tuiapp.view.groups import runs_of as runs_of_row
from tuiapp.view.run_list import objective_words, tags, title
from tuiapp.view.run_values import CONFIG, known_values

WIDEST = 24  # characters of a value in the table; --json has all of it


def compare_runs(options: Namespace) -> int:
    """Prints a column per run and group, or one JSON object."""
    # With NumPy.
    from tuiapp.library.chart_view import chosen_objective

    runs = runs_of(options) if options.runs else []
    rows: list[Row] = [with_facts(summarise(run)) for run in runs]
    rows += _groups(options)
    if len(rows) < 2:
        same = f": all of these are {runs[0].run_id}" if len(options.runs) > 1 else ""
        raise UsageError(f"Give two or more runs or groups to compare{same}; `tuiapp runs` lists them.")
    infos, differences = [info for row in rows for info in runs_of_row(row)], differing(rows)
    objective = chosen_objective(infos)
    if options.json:
        print_json(_facts(rows, differences, objective))
        return 0
    letters = [ascii_lowercase[index] if index < 26 else str(index) for index in range(len(rows))]
    best = has_best(rows, objective) if objective else None
    for letter, row in zip(letters, rows, strict=True):
        name, more = (title(row), tags(row)) if isinstance(row, RunInfo) else (row.name, plural(len(row.infos), "run"))
        star = f"★ {objective_words(objective, infos)}" if objective and row is best else ""
        print(join_words([f"{letter}  {sanitize(name)}", more, star]))
    heads = [
        _cut(" ".join(filter(None, ["★" if row is best else "", letter, sanitize(row.name)])))
        for row, letter in zip(rows, letters, strict=True)
    ]
    _print_table("differing keys", differences, heads)
    line = objective_line(rows, objective) if best is not None else None
    outcome = [result for result in results(rows) if line is None or result.values != line.values]
    _print_table("results", [*([line] if line else []), *outcome], heads)
    for row in rows:
        if isinstance(row, RunGroup) and len(row.counted) < len(row.infos):
            tell(f"{row.name}: the results are those of the {plural(len(row.counted), 'completed run')}.")
    for info in infos:
        if info.config is None:
            tell(f"the keys of {info.directory.run_id} are not known: {info.problem}")
    return 0


def _groups(options: Namespace) -> list[Row]:
    """Returns the groups that are asked for; raises UsageError if there is no such group."""
    groups, rows = groups_of(runs_dir(options)) if options.groups else {}, list[Row]()
    for name in dict.fromkeys(options.groups):
        if name not in groups:
            raise UsageError(f"no run has the group {name!r}.{suggest(name, groups)}")
        rows += fold([with_facts(summarise(run)) for run in groups[name]])
    return rows


def _facts(rows: Sequence[Row], differences: Sequence[Line], objective: Objective | None) -> dict[str, object]:
    by_row = [[known_values(info) if info.config else None for info in runs_of_row(row)] for row in rows]

    def distinct(name: str, configs: Sequence[dict[str, object] | None]) -> object:
        values = [config and config.get(name, config.get(name.removeprefix(CONFIG))) for config in configs]
        return values[0] if len(values) == 1 else [value for n, value in enumerate(values) if value not in values[:n]]

    facts: dict[str, object] = {"runs": [list_facts(row) for row in rows if isinstance(row, RunInfo)]}
    if groups := [row for row in rows if isinstance(row, RunGroup)]:
        facts["groups"] = [group_facts(group, objective) for group in groups]
    return {
        **facts,
        "differing": {line.name: [distinct(line.name, configs) for configs in by_row] for line in differences},
    }


def _print_table(title: str, lines: list[Line], heads: list[str]) -> None:
    if not lines:
        print(f"\n{title}: none")
        return
    rows = [(title, *heads), *((line.name, *(_cut(value) for value in line.values)) for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # What is compared are numbers, mostly.
    right = [(name, *map(str.rjust, values, widths[1:])) for name, *values in rows]
    print("", *aligned(right), sep="\n")


def _cut(value: str) -> str:
    return value if len(value) <= WIDEST else f"…{value[1 - WIDEST :]}"
