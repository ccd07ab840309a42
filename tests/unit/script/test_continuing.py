"""Which run `init(id=…, resume=…)` goes on with, or why none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import histories
from tests.kit.recorded import record
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.launch.begin import this_program
from tuiapp.trainers.launch.directory import working_directory
from tuiapp.trainers.script.continuing import (
    ResumeError,
    Wanted,
    check_launched,
    choose,
    given_id,
    keep_id,
    read_wanted,
)


def _run(runs_dir: Path, number: int, id: str = "", *, dies: bool = False) -> RunDir:
    script = RunConfig(backend="script", script=this_program(), working_directory=working_directory() or "/")
    events = histories.running() if dies else histories.completed()
    run = record(runs_dir, f"20261120T00000{number}-script-t-0123", events, script)
    keep_id(run, id)
    return run


@pytest.mark.parametrize(
    ("resume", "known_as"),
    [(None, ""), (False, ""), ("", ""), ("allow", "allow"), ("auto", "auto"), (True, "auto"), ("True", "auto")],
)
def test_how_a_script_may_ask(resume: object, known_as: str) -> None:
    assert read_wanted("abc", resume) == Wanted("abc", known_as)


@pytest.mark.parametrize(
    ("id", "resume", "says"),
    [
        ("abc", "always", "resume='always' is none of 'allow', 'must', 'never', 'auto'"),
        (None, "must", 'resume="must" needs the id'),
        ("a\nb", None, "is no run's id"),
        ("x" * 200, None, "is no run's id"),
    ],
)
def test_what_cannot_be_asked(id: object, resume: object, says: str) -> None:
    with pytest.raises(ResumeError) as refused:
        read_wanted(id, resume)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("there", "id", "resume", "comes_to"),
    [
        (True, "abc", "allow", "it"),
        (True, "abc", "must", "it"),
        (True, "abc", "auto", "it"),
        (True, "abc", "never", "there is a run abc already"),
        (True, "abc", "", "a new one"),
        (False, "abc", "allow", "a new one"),
        (False, "abc", "must", "there is no run abc"),
        (False, "abc", "never", "a new one"),
        (False, "abc", "auto", "a new one"),
        (True, "", "allow", "a new one"),
    ],
)
def test_a_run_of_that_id(tmp_path: Path, there: bool, id: str, resume: str, comes_to: str) -> None:
    run = _run(tmp_path, 1, "abc" if there else "other")
    _run(tmp_path, 2)
    if comes_to in ("it", "a new one"):
        assert choose(tmp_path, Wanted(id, resume)) == (run if comes_to == "it" else None)
    else:
        with pytest.raises(ResumeError, match=comes_to):
            choose(tmp_path, Wanted(id, resume))


def test_a_runs_own_id_and_the_newest_of_one_id(tmp_path: Path) -> None:
    first, second = _run(tmp_path, 1, "abc"), _run(tmp_path, 2, "abc")
    assert choose(tmp_path, Wanted("abc", "must")) == second
    assert choose(tmp_path, Wanted(first.run_id, "must")) == first
    assert (given_id(first), given_id(_run(tmp_path, 3))) == ("abc", "")


def test_auto_goes_on_with_the_scripts_last_run_unless_it_completed(tmp_path: Path) -> None:
    assert choose(tmp_path, Wanted(resume="auto")) is None
    lost = _run(tmp_path, 1, dies=True)
    assert choose(tmp_path, Wanted(resume="auto")) == lost
    _run(tmp_path, 2)
    assert choose(tmp_path, Wanted(resume="auto")) is None


def test_a_live_run_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuiapp.trainers.script.continuing.END_S", 0.0)
    run = _run(tmp_path, 1, "abc")
    lock = run.take_lock()
    try:
        with pytest.raises(ResumeError, match="abc is live"):
            choose(tmp_path, Wanted("abc", "allow"))
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("launched_as", "resume", "resumes", "comes_to"),
    [
        ("", "", False, False),
        ("", "allow", False, False),
        ("", "must", False, "there is no run abc"),
        ("", "never", False, False),
        ("abc", "allow", True, True),
        ("abc", "must", True, True),
        ("abc", "", True, False),
        ("abc", "never", True, 'which resume="never" rules out'),
        # Another rank has been here.
        ("abc", "must", False, "there is no run abc"),
        ("abc", "never", False, False),
        ("other", "allow", False, False),
        ("other", "must", False, "`tuiapp run` has begun another; to go on with that one: tuiapp run --resume"),
        ("other", "never", False, "there is a run abc already"),
    ],
)
def test_what_tuiapp_run_has_launched(
    tmp_path: Path, launched_as: str, resume: str, resumes: bool, comes_to: bool | str
) -> None:
    if launched_as == "other":
        _run(tmp_path, 1, "abc")
    launched = _run(tmp_path, 2, launched_as if launched_as == "abc" else "")
    if isinstance(comes_to, bool):
        assert check_launched(launched, Wanted("abc", resume), resumes=resumes) is comes_to
    else:
        with pytest.raises(ResumeError) as refused:
            check_launched(launched, Wanted("abc", resume), resumes=resumes)
        assert comes_to in str(refused.value)
