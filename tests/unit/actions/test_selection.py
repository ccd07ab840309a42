"""Which runs words mean, on recorded run directories."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit.recorded import CONFIG, record
from tuiapp.actions.action import select
from tuiapp.library.find import UnknownRunError
from tuiapp.trainers.contract.sidecars import About, write_about

FIRST, SECOND, THIRD = (f"20261120T10150{n}-torch-ddp-net-3fa{n}" for n in (3, 2, 1))


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    abouts = {
        FIRST: About(name="baseline", tags=("sweep",), group="rates"),
        SECOND: About(name="wide", tags=("sweep", "old"), group="rates"),
        THIRD: About(name="lr=0.5"),
    }
    for name, about in abouts.items():
        events = interrupted.failed() if name == SECOND else h.completed()
        config = msgspec.structs.replace(CONFIG, learning_rate=0.5 if name == THIRD else 0.01)
        write_about(record(tmp_path, name, events, config), about)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["latest"], [FIRST]),
        ([SECOND[:15], "wide"], [SECOND]),
        (["rates"], [FIRST, SECOND]),
        (["lr=0.5", "rates"], [THIRD, FIRST, SECOND]),
        (["tag:sweep"], [FIRST, SECOND]),
        (["tag:sweep", "state:failed"], [SECOND]),
        (["tag:sweep failed", "baseline"], [FIRST, SECOND]),
        (["lr>=0.5"], [THIRD]),
        (["group:rates", "test/accuracy>0"], [FIRST, SECOND]),
    ],
)
def test_what_is_meant(runs_dir: Path, words: list[str], expected: list[str]) -> None:
    assert sorted(run.run_id for run in select(words, runs_dir)) == sorted(expected)
    assert [run.path.parent for run in select(words, runs_dir)] == [runs_dir] * len(expected)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["failed"], "There is no run 'failed'"),
        (["tag:sweep", "failed"], "There is no run 'failed'"),
        (["tag:nothing"], "None of 3 runs matches 'tag:nothing'"),
        (["ratse"], "There is no run 'ratse' .* Did you mean 'rates'?"),
        (["lr<"], "'lr<' is no filter"),
        (["lrate<0.1"], "no run has 'lrate'"),
        ([""], "There is no run ''"),
        (["20261120T1015"], "matches 3 runs"),
    ],
)
def test_what_means_nothing(runs_dir: Path, words: list[str], why: str) -> None:
    with pytest.raises(UnknownRunError, match=why):
        select(words, runs_dir)


def test_a_name_that_a_run_and_a_group_have(runs_dir: Path) -> None:
    write_about(select([THIRD], runs_dir)[0], About(name="rates"))
    with pytest.raises(UnknownRunError, match="type its id, or group:rates"):
        select(["rates"], runs_dir)
    assert len(select(["group:rates", THIRD], runs_dir)) == 3
