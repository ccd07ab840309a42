"""The list of runs: columns, order, filter."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.screens.runs_app import info
from trainers.contract.events import Summary
from tuiapp.cli import build_parser
from tuiapp.view.comparison import differing, results
from tuiapp.view.run_list import BY_NAME, COLUMNS, choose, order, started
from tuiapp.view.table import fitting

ALL = [info(n, learning_rate=0.1**n) for n in range(4, 0, -1)]


def test_the_command_line_knows_all_columns() -> None:
    for name in BY_NAME:
        assert build_parser().parse_args(["runs", "--sort", name]).sort == name


def test_other_commands_do_not_wait_for_them() -> None:
    code = "import sys; from tuiapp.cli import build_parser; build_parser().parse_args(['runs']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "tuiapp.cli" in loaded
    assert "tuiapp.view.run_list" not in loaded


@pytest.mark.parametrize("width", [0, 10, 40, 74, 114, 194, 205])
def test_columns_fit(width: int) -> None:
    columns = fitting(COLUMNS, width)
    assert sum(column.width for column in columns) + 2 * max(0, len(columns) - 1) <= width
    assert [column for column in COLUMNS if column in columns] == columns
    assert (len(columns) == len(COLUMNS)) == (width == 205)


def test_every_cell_keeps_to_its_column() -> None:
    for one in [*ALL, info(1, "unreadable", problem="x"), info(2, "running")]:
        for column in COLUMNS:
            assert len(column.cell(one)) <= column.width


def test_newest_first_and_live_ones_on_top() -> None:
    live = info(0, "running")
    assert order([*ALL, live]) == [live, *ALL]
    assert order([*ALL, live], reverse=True) == [live, *ALL[::-1]]


def test_by_a_column_those_without_a_value_last() -> None:
    unknown = info(9, problem="no configuration")
    assert order([unknown, *ALL], "loss") == [unknown, *ALL]
    assert order([unknown, *ALL], "loss", reverse=True) == [*ALL[::-1], unknown]
    assert order([unknown, *ALL], "devices")[-1] == unknown
    assert order([unknown, *ALL], "devices", reverse=True)[-1] == unknown


def test_words() -> None:
    assert choose(ALL, "") == ALL
    assert choose(ALL, "  TORCH 0004 ") == [ALL[0]]
    assert choose(ALL, "torch-ddp jax") == []


def test_a_run_without_a_time() -> None:
    assert started(ALL[0]) != "–"
    assert started(info(1, problem="x")) != ""


def test_only_keys_that_differ() -> None:
    assert [line.name for line in differing(ALL[:2])] == ["learning_rate"]
    assert differing([ALL[0], ALL[0]]) == []
    assert differing([ALL[0], info(9, problem="x")]) == []
    assert differing([]) == []
    assert [line.values for line in results(ALL[:2]) if line.name == "state"] == [("✓ completed", "✓ completed")]


def test_the_best_test_loss_is_compared_where_a_run_is_best_by_it() -> None:
    assert "best test loss" not in [line.name for line in results(ALL)]
    assert "best test loss" in [line.name for line in results([*ALL, info(9, best="loss")])]


def test_evaluations_are_called_as_the_scripts_call_them() -> None:
    of_val = [replace(one, summary=Summary(evaluated_on="val", test_loss=0.5)) for one in ALL[:2]]
    assert "val loss" in [line.name for line in results(of_val)]
    assert "test loss" in [line.name for line in results([*of_val, ALL[2]])]
