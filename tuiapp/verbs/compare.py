"""`tuiapp compare`: the keys in which runs differ, and their results."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from string import ascii_lowercase

from trainers.config.run_config import to_toml_values
from trainers.state.summary import summarise
from trainers.state.text import join_words, sanitize
from tuiapp.library.find import find_run
from tuiapp.library.script_facts import with_facts
from tuiapp.verbs.facts import UsageError, list_facts
from tuiapp.verbs.sources import runs_dir
from tuiapp.view.comparison import Line, differing, results
from tuiapp.view.run_list import tags, title
from tuiapp.view.table import plain_table, text_columns

WIDEST = 24  # characters of a value in the table; --json has all of it


def compare_runs(options: Namespace) -> int:
    """Prints a column per run, or one JSON object."""
    directory = runs_dir(options)
    runs = list(dict.fromkeys(find_run(name, directory) for name in options.runs))
    if len(runs) < 2:
        same = f": all of these are {runs[0].run_id}" if len(options.runs) > 1 else ""
        raise UsageError(f"Give two or more runs to compare{same}; `tuiapp runs` lists them.")
    infos = [with_facts(summarise(run)) for run in runs]
    differences = differing(infos)
    if options.json:
        configs = [to_toml_values(info.config) if info.config else None for info in infos]
        known = [
            {**config, **info.facts.config} if config else None for config, info in zip(configs, infos, strict=True)
        ]
        differ = {line.name: [one and one.get(line.name) for one in known] for line in differences}
        print(json.dumps({"runs": [list_facts(info) for info in infos], "differing": differ}, indent=2))
        return 0
    letters = [ascii_lowercase[place] if place < 26 else str(place) for place in range(len(infos))]
    for letter, info in zip(letters, infos, strict=True):
        print(join_words([f"{letter}  {title(info)}", tags(info)]))
    _print_table("differing keys", differences, letters)
    _print_table("results", results(infos), letters)
    for info in infos:
        if info.config is None:
            words = f"tuiapp: the keys of {info.directory.run_id} are not known: {info.problem}"
            print(sanitize(words), file=sys.stderr)
    return 0


def _print_table(title: str, lines: list[Line], letters: list[str]) -> None:
    if not lines:
        print(f"\n{title}: none")
        return
    print()
    rows = [(line.name, *map(_cut, line.values)) for line in lines]
    for row in plain_table(text_columns((title, *letters)), rows):
        print(row)


def _cut(value: str) -> str:
    return value if len(value) <= WIDEST else f"…{value[1 - WIDEST :]}"
