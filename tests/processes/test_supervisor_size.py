"""A supervisor stays as small as it was, however long its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, launched
from tuiapp.trainers.contract.events import Metrics

pytestmark = pytest.mark.nightly

FIRST, LAST = 500_000, 5_000_000


@pytest.mark.by_hand
@pytest.mark.timeout(900)
def test_over_millions_of_steps(runs_dir: Path, fake: Callable[..., None]) -> None:
    fake(step=0.0)
    config = msgspec.structs.replace(MLP, devices=1, epochs=1_000_000, eval_every=0, checkpoint_every=0)
    with launched(config, runs_dir) as run:
        supervisor = psutil.Process(run.started.pid)
        sizes = []
        for step in (FIRST, LAST):
            run.wait(Metrics, lambda event, step=step: event.last_step >= step, 400)  # type: ignore[misc]
            sizes.append((supervisor.memory_info().rss, supervisor.num_fds()))
            run.events.clear()
        (rss, fds), (rss_later, fds_later) = sizes
        cpu = sum(supervisor.cpu_times()[:2])
        print(
            f"\nsupervisor after {FIRST:,} and {LAST:,} steps: {rss / 2**20:.1f} and {rss_later / 2**20:.1f} MiB, "
            f"{fds} and {fds_later} descriptors, {cpu:.1f} s of processor time, "
            f"journal {run.run.journal.stat().st_size / 2**20:.1f} MiB"
        )
        assert rss_later - rss < 4 << 20
        assert abs(fds_later - fds) <= 2
