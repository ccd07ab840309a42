"""Who has which GPU: held while a process lives that has the descriptors, by nobody afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tuiapp.trainers.config.machine import Gpu
from tuiapp.trainers.contract.gpu_leases import choosing, directory, leases, take, with_leases

ONE, OTHER = "20261128T100000-script-train-3fa1", "20261128T100001-script-train-3fa2"


def held() -> list[tuple[str, str]]:
    return [(lease.gpu, lease.run) for lease in leases()]


def test_a_lease_is_held_until_the_last_process_that_has_it_ends() -> None:
    with choosing():
        first = take(["GPU-0", "GPU-1"], ONE)
        # A GPU may be shared, if its runs name it.
        second = take(["GPU-1"], OTHER)
    assert held() == [("GPU-0", ONE), ("GPU-1", ONE), ("GPU-1", OTHER)]
    with subprocess.Popen(["sleep", "60"], pass_fds=first) as supervisor:
        for fd in first:
            os.close(fd)
        assert len(held()) == 3
        gpus = tuple(Gpu(index=number, uuid=f"GPU-{number}", name="") for number in range(3))
        assert [[lease.run for lease in gpu.leases] for gpu in with_leases(gpus)] == [[ONE], [ONE, OTHER], []]
        supervisor.kill()
    assert held() == [("GPU-1", OTHER)]
    os.close(second[0])
    assert not held()
    # What they left is removed by whoever comes next.
    with choosing():
        take([], ONE)
    assert [path.name for path in directory().iterdir()] == ["choosing"]


def test_a_directory_that_cannot_be_written_keeps_nobody_from_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("TUIAPP_GPU_LEASES", str(blocked))
    with choosing():
        assert take(["GPU-0"], ONE) == []
    assert leases() == []


def test_what_somebody_else_put_there_is_ignored() -> None:
    with choosing():
        [fd] = take(["GPU-0"], ONE)
    os.mkfifo(directory() / "fifo")
    (directory() / "link").symlink_to(directory() / "choosing")
    (directory() / "nonsense").write_text("{")
    with choosing():
        others = take(["GPU-1", "GPU-2"], OTHER)
    os.pwrite(others[0], b'{"gpu":' + b"[" * 4000, 0)
    os.pwrite(others[1], b'{"gpu":"\xff"}', 0)
    assert held() == [("GPU-0", ONE)]
    for one in (fd, *others):
        os.close(one)
