"""The queue on a cluster is Slurm's own: some jobs at a time, each run once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit.cluster import cancel_all, slurm
from tests.unit.experiments.conftest import Queue, script, wait_until
from tuiapp.trainers.experiments.queue import enqueue
from tuiapp.trainers.state.summary import summarise

pytestmark = pytest.mark.nightly

TEXT = "import os, time; time.sleep(1); open(os.environ['NOTES'], 'a').write('x')"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    with slurm() as environment:
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, environment[name])
        yield environment
        cancel_all(environment)


@pytest.mark.timeout(900)
def test_twenty_runs_four_at_a_time(
    waiting: Queue, cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    config = msgspec.structs.replace(script(tmp_path, TEXT), launcher="slurm", network="lo", slurm="-t 10")
    runs = [enqueue(config, waiting.runs_dir, parallel=4) for _ in range(20)]
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, sum(run.is_live() and run.run_id not in waiting.waiting for run in runs))
        return waiting.is_over()

    wait_until(over, 800)
    assert 1 < most <= 4
    assert {summarise(run).status for run in runs} == {"completed"}
    assert (tmp_path / "notes").read_text() == "x" * 20
    assert len(waiting.started()) == 20
