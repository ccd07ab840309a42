"""Steps of real ranks that are profiled while they train."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.kit.harness import MLP, launched
from tests.kit.recorder import JAX_BACKENDS
from tests.kit.variants import mostly_by_hand
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import COMMUNICATION, HOST, KERNELS, Profile

pytestmark = pytest.mark.nightly


@pytest.fixture
def umask() -> Iterator[None]:
    """No umask at all."""
    before = os.umask(0)
    yield
    os.umask(before)


BACKENDS = ["torch-ddp", "torch-fsdp", "torch-dp", "keras-torch", *JAX_BACKENDS]


@pytest.mark.parametrize("backend", mostly_by_hand(BACKENDS, "torch-ddp", "jax-sharding"))
def test_every_rank_profiles_the_same_steps_and_training_goes_on(backend: str, runs_dir: Path, umask: None) -> None:
    devices = 1 if backend == "torch-dp" else 2
    config = msgspec.structs.replace(MLP, backend=backend, devices=devices, epochs=6)
    with launched(config, runs_dir) as run:
        sidecars.send_command(run.run.commands, "profile", 5)
        end = run.end(170)
        found = run.of(Profile)
        assert sorted(one.rank for one in found) == list(range(devices))
        assert {(one.step, one.steps) for one in found} == {(found[0].step, 5)}
        assert end.status == "completed"
        for one in found:
            assert sum(one.spent.values()) == pytest.approx(one.seconds)
            assert one.spent[KERNELS] > 0
            assert one.spent[HOST] < one.seconds
            assert (one.spent[COMMUNICATION] > 0) == (devices > 1)
            assert len(one.largest) == 10
            # A compiled step's memory; torch compiles none, and tells no peak on the CPU.
            assert (one.step_memory is not None) == (backend in JAX_BACKENDS)
            assert one.peak_bytes is None
            assert one.process_peak_bytes is None
            trace = json.loads(gzip.decompress((run.run.path / one.trace).read_bytes()))
            names = {event.get("name") for event in trace["traceEvents"]}
            assert names & {operation.name for operation in one.largest}
        # Each step is reported, those that were profiled too.
        assert run.steps_of(0) == list(range(1, end.summary.steps + 1))
        run.wait_gone()
        assert [path.name for path in run.run.export.iterdir()]
        assert [path.name for path in run.run.checkpoints.iterdir()]
    # Whatever the umask, and whoever wrote it.
    open_to_others = {str(path): mode for path in runs_dir.rglob("*") if (mode := path.lstat().st_mode & 0o077)}
    assert not open_to_others
