"""Line 11: the kernel's out-of-memory killer, by a control group with little memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.harness import MLP, launched
from tuiapp.trainers.contract.events import RankFailed

pytestmark = pytest.mark.nightly

GROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A group of the first version of cgroups with 256 MiB."""
    group = GROUPS / f"tuiapp-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
    except OSError:
        group.rmdir() if group.exists() else None
        pytest.skip("no control group can be made here")
    yield group
    group.rmdir()


def test_a_rank_that_the_kernel_kills_for_want_of_memory(
    runs_dir: Path, fake: Callable[..., None], small_group: Path
) -> None:
    # Late enough for the supervisor to have looked at the new group's count twice.
    fake("hog:1:300", step=0.05)
    with launched(MLP, runs_dir) as run:
        # The whole run, so that the count is that of its supervisor's group too, and not before its ranks are there:
        # one that begins meanwhile would stay outside.
        run.at_step(1)
        for process in run.processes():
            (small_group / "cgroup.procs").write_text(str(process.pid))
        limited = (small_group / "cgroup.procs").read_text().split()
        assert {str(run.pid(0)), str(run.pid(1))} <= set(limited)
        end = run.end()
        failed = next(one for one in run.of(RankFailed) if one.rank == 1)
        print(f"\n{end.reason}")
        assert failed.signal == "SIGKILL"
        assert end.failed_rank == 1
        assert "by the kernel's out-of-memory killer" in end.reason
        assert "not by" not in end.reason
        run.wait_gone()
