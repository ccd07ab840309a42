"""What the kernel's control groups leave of the memory, from files as both versions have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiapp.trainers.config.machine import memory_groups, memory_limit


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def write(group: Path, **files: object) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (group / name.replace("__", ".")).write_text(f"{content}\n")


def test_the_least_limit_of_a_group_and_those_above_it(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/user.slice/job\n")
    root = tmp_path / "fs"
    write(root / "user.slice", memory__max=1000, memory__current=700, memory__stat="anon 500\ninactive_file 90")
    write(root / "user.slice" / "job", memory__max="max", memory__current=300, memory__stat="anon 300")
    groups = memory_groups(own, root)
    assert groups == [root / "user.slice" / "job", root / "user.slice", root]
    assert memory_limit(groups) == (1000, 390)
    write(root / "user.slice" / "job", memory__max=400)
    assert memory_limit(groups) == (400, 100)


def test_the_first_version_in_a_container(tmp_path: Path, own: Path) -> None:
    own.write_text("5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n1:name=systemd:/docker/ab\n")
    root = tmp_path / "fs"
    stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20"
    # What is mounted is the container's own group.
    write(root / "memory", memory__limit_in_bytes=1000, memory__usage_in_bytes=600, memory__stat=stat)
    groups = memory_groups(own, root)
    assert groups == [root / "memory" / "docker" / "ab", root / "memory" / "docker", root / "memory"]
    assert memory_limit(groups) == (1000, 450)


def test_no_limit(tmp_path: Path, own: Path) -> None:
    assert memory_limit(memory_groups(own, tmp_path)) is None
    own.write_text("0::/\n")
    write(tmp_path, memory__max="max", memory__current=1)
    assert memory_limit(memory_groups(own, tmp_path)) is None
