"""Files of JSON that is nested too deeply are damaged ones, no error of the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuiapp.library.chart_view import ChartView, read_view, view_path
from tuiapp.library.last_form import form_path, read_last_form
from tuiapp.trainers.config.files import user_cache
from tuiapp.trainers.config.installed import known
from tuiapp.trainers.config.plan import read_plan
from tuiapp.trainers.contract.notices import take_notification_config
from tuiapp.trainers.contract.rundir import RunDir

NESTED = '{"a":' * 5000


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(NESTED)
    return path


@pytest.mark.parametrize(
    ("path", "read", "found"),
    [
        (view_path, lambda: read_view()[0], ChartView()),
        (form_path, lambda: read_last_form()[0], None),
        (lambda: user_cache() / "interpreters.json", lambda: known("/nowhere/python", ()), None),
    ],
    ids=["charts", "form", "interpreters"],
)
def test_what_is_remembered_is_forgotten(path: Callable[[], Path], read: Callable[[], object], found: object) -> None:
    put(path())
    assert read() == found


def test_of_a_run(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with pytest.raises(ValueError, match=r"plan\.json: maximum recursion depth exceeded"):
        read_plan(put(run.plan))
    put(run.notice)
    assert take_notification_config(run) is None
