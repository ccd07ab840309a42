"""What a script says of its run by `tuiapp.init` and `run.summary`, in the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit import histories as h
from tests.kit import own_metrics as own
from tests.kit.command_line import Command
from tests.kit.digest_runs import digest_of
from tests.kit.recorded import record
from tuiapp.trainers.config.run_config import RunConfig, to_toml_values
from tuiapp.trainers.contract.events import AnyEvent, Facts, LogLine

SCRIPT = RunConfig(backend="script", script="/x/train.py", platform="cpu")
FIRST, SECOND = own.RUN_ID, own.RUN_ID[:-1] + "2"


def history(name: str, **config: object) -> list[AnyEvent]:
    """A run whose journal is too long for a list to find the facts at its ends."""
    begun, *rest = own.completed(config=to_toml_values(SCRIPT))
    noise = [LogLine(rank=0, stream="stdout", text="x" * 1000, **h.at(1)) for _ in range(100)]
    said = [Facts(name=name, config=config, total_steps=200, **h.at(1)), Facts(summary={"best": 0.5}, **h.at(1))]
    return [begun, *noise[:50], *said, *noise[50:], *rest]


@pytest.fixture
def recorded(runs_dir: Path) -> Path:
    record(runs_dir, FIRST, history("baseline", lr=0.1, layers=[1, 2], only=1), SCRIPT)
    run = record(runs_dir, SECOND, (events := history("wide\x1b[31m", lr=0.2, layers=[1, 2])), SCRIPT)
    digest_of(run, events)
    return runs_dir


def test_show(tuiapp: Command, recorded: Path) -> None:
    facts = json.loads(tuiapp("show", FIRST, "--json").out)
    assert (facts["name"], facts["script_config"]) == ("baseline", {"lr": 0.1, "layers": [1, 2], "only": 1})
    assert facts["script_summary"] == {"best": 0.5}
    assert facts["script_metrics"]["train/ppl"] == own.value_of("train/ppl", 120)
    lines = [line.split() for line in tuiapp("show", SECOND).out.splitlines()]
    assert ["name", "wide"] in lines
    for line in (["lr", "0.2"], ["layers", "[1,", "2]"], ["best", "0.5"]):
        assert line in lines
    assert ["train/ppl", f"{own.value_of('train/ppl', 120):.3f}"] in lines


def test_compare(tuiapp: Command, recorded: Path) -> None:
    lines = [line.split() for line in tuiapp("compare", FIRST, SECOND).out.splitlines()]
    assert ["lr", "0.1", "0.2"] in lines
    assert ["only", "1", "–"] in lines
    assert not any("layers" in line for line in lines)
    assert json.loads(tuiapp("compare", FIRST, SECOND, "--json").out)["differing"] == {
        "lr": [0.1, 0.2], "only": [1, None],
    }  # fmt: skip
