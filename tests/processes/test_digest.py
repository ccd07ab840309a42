"""The digest that real supervisors leave, over several attempts, one of them killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, launched, resumed, wait_dead
from tests.unit.run.test_digest_writer import assert_complete
from tuiapp.trainers.contract import mailbox
from tuiapp.trainers.contract.events import Checkpoint
from tuiapp.trainers.state.snapshot import load

pytestmark = pytest.mark.nightly


def test_it_spans_all_attempts(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.002)
    config = msgspec.structs.replace(MLP, checkpoint_every=1, epochs=100_000)
    with launched(config, runs_dir) as first:
        run = first.run
        first.wait(Checkpoint)
        mailbox.send(run.commands, "stop")
        first.end()
        first.wait_gone()
    digest = load(run)
    assert digest
    assert digest.offset == run.journal.stat().st_size
    assert digest.state.curves[0, "loss"].last_step == first.end().summary.steps
    assert_complete(run)
    with resumed(run) as second:
        second.wait(Checkpoint)
        supervisor = psutil.Process(second.started.pid)
        supervisor.kill()
        wait_dead([supervisor])
        second.wait_gone()
    # It said nothing of its end: what it wrote is read after the first one's digest.
    found = load(run)
    assert found
    assert found.offset == digest.offset
    assert_complete(run)
    with resumed(run) as third:
        third.wait(Checkpoint)
        mailbox.send(run.commands, "stop")
        third.end()
        third.wait_gone()
    last = load(run)
    assert last
    assert last.offset == run.journal.stat().st_size > digest.offset
    assert_complete(run)
