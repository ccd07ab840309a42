"""Two nodes and a full disk: training continues if it can, else node, directory and cure are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit.disks import Disk, small_disk
from tests.kit.harness import Watched, launched
from tests.kit.nodes import address_of, agent
from tests.processes.test_nodes import NAMED_S, ON_TWO

pytestmark = pytest.mark.nightly

CONFIG = msgspec.structs.replace(ON_TWO, checkpoint_every=0, eval_every=0)
FULL = "No space left on device"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def own_directory(disk: Disk, run: Watched) -> Path:
    return disk.path / "home" / "tuiapp" / "nodes" / run.run.run_id


def test_a_node_whose_disk_is_full_from_the_start_is_named(runs_dir: Path, disk: Disk, no_framework: None) -> None:
    with launched(CONFIG, runs_dir) as run:
        address_of(run)
        with agent(run, home=disk.path / "home", before=lambda: disk.fill(0)) as other:
            said = run.end(NAMED_S).reason
            assert said.startswith(f"node 1 (node-b) cannot start its ranks: {FULL}: {own_directory(disk, run)}; ")
            assert "set XDG_DATA_HOME" in said
            assert other.wait(NAMED_S) == 0
        run.wait_gone()
