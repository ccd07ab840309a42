"""What PyTorch's flight recorder tells of a rank, and how long NCCL waits."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

from tuiapp.trainers.config.options import HANG_VARIABLE
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.frameworks.torch import profile
from tuiapp.trainers.frameworks.torch import ranks as torch_ranks
from tuiapp.trainers.frameworks.torch.profile import read_trace
from tuiapp.trainers.rank.reporter import Reporter
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.stacks import Collectives

pytestmark = pytest.mark.nightly


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """As PyTorch 2.13 writes them, without what is not read."""
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[225226]],
        "is_p2p": False,
        "pg_id": 0,
        "profiling_name": "nccl:all_reduce",
        "retired": False,
        "state": "scheduled",
        **changes,
    }


def trace(begun: int, done: int, *entries: dict[str, Any]) -> dict[str, Any]:
    status = {"last_enqueued_collective": str(begun), "last_completed_collective": str(done)}
    return {"version": "2.10", "pg_status": {"0": status}, "entries": entries}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (trace(9, 7, entry(9, input_sizes=[[1]]), entry(8)), Collectives(9, 7, "all_reduce of Float [225226]")),
        # Computed, but not yet found to be by the thread that looks after them.
        (trace(9, 8, entry(8, state="completed"), entry(9)), Collectives(9, 8, "all_reduce of Float [225226]")),
        (trace(9, 9), Collectives(9, 9, "")),
        (trace(1, -1, entry(1, profiling_name="gloo:broadcast")), Collectives(1, 0, "broadcast of Float [225226]")),
        (trace(-1, -1), Collectives(0, 0, "")),
        # Of another group, or from one rank to another.
        (trace(5, 5, entry(5, pg_id=1), entry(5, is_p2p=True)), Collectives(5, 5, "")),
        # gloo: the thread of collective 23 came last to note that its own is done.
        (trace(24, 23, entry(23, retired=True), entry(24, retired=True)), Collectives(24, 24, "")),
        (trace(25, 23, entry(24, retired=True), entry(25)), Collectives(25, 24, "all_reduce of Float [225226]")),
        ({"version": "2.10", "pg_status": {}}, None),
    ],
)
def test_what_a_rank_has_begun_and_done(given: dict[str, Any], found: Collectives | None) -> None:
    assert read_trace(given) == found


def test_nccl_has_a_recorder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def dump(name: str, **options: bool) -> bytes:
        asked.append(name)
        assert options == {"includeCollectives": True, "onlyActive": True}
        return b'{"pg_status": {}}'

    private = SimpleNamespace(
        _dump_nccl_trace_json=lambda **options: dump("nccl", **options),
        _dump_fr_trace_json=lambda **options: dump("gloo", **options),
    )
    monkeypatch.setattr(torch._C, "_distributed_c10d", private)
    for backend in ("nccl", "gloo"):
        monkeypatch.setattr(dist, "get_backend", lambda name=backend: name)
        assert profile.collectives() is None
    assert asked == ["nccl", "gloo"]
    # A version of PyTorch without it.
    monkeypatch.setattr(torch._C, "_distributed_c10d", SimpleNamespace())
    assert profile.collectives() is None


@pytest.mark.parametrize(
    ("platform", "hang_s", "node_grace_s", "seconds"),
    [("cuda", "", 60.0, 3600), ("cuda", "7200", 60.0, 14400), ("cuda", "", 2000.0, 4000), ("cpu", "", 60.0, None)],
)
def test_nccl_waits_longer_than_a_hang_s_report_and_a_node_s_grace(
    monkeypatch: pytest.MonkeyPatch, platform: str, hang_s: str, node_grace_s: float, seconds: int | None
) -> None:
    monkeypatch.setenv(HANG_VARIABLE, hang_s)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv(wire.STORE_FD, "99")
    monkeypatch.setattr(dist, "TCPStore", lambda *_, **__: "store")
    given: list[Any] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: given.append((backend, options)))
    config = RunConfig(platform=platform, devices=2, node_grace_s=node_grace_s)
    phases: list[str] = []
    report = SimpleNamespace(collectives=None, phase=phases.append)
    monkeypatch.setattr(torch_ranks, "meet", lambda device: phases.append("met"))
    torch_ranks.connect(config, 1, torch.device(platform), cast(Reporter, report))
    ((backend, options),) = given
    assert backend == ("nccl" if platform == "cuda" else "gloo")
    assert (options["rank"], options["world_size"]) == (1, 2)
    assert options["timeout"] == (None if seconds is None else timedelta(seconds=seconds))
    assert report.collectives is profile.collectives
    assert phases == (["connecting", "met", "preparing"] if platform == "cuda" else [])
