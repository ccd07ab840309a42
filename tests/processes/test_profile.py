"""Steps of real ranks that are profiled while they train."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from tests.backends.recorder import JAX_BACKENDS
from tests.processes.harness import MLP, launched
from tests.slow import mostly_slow
from trainers.contract import mailbox
from trainers.contract.events import COMMUNICATION, HOST, KERNELS, Profile

BACKENDS = ["torch-ddp", "torch-fsdp", "torch-dp", "keras-torch", *JAX_BACKENDS]


@pytest.mark.parametrize("backend", mostly_slow(BACKENDS, "torch-ddp", "jax-sharding"))
def test_every_rank_profiles_the_same_steps_and_training_goes_on(backend: str, runs_dir: Path) -> None:
    devices = 1 if backend == "torch-dp" else 2
    config = msgspec.structs.replace(MLP, backend=backend, devices=devices, epochs=6, checkpoint_every=0)
    with launched(config, runs_dir) as run:
        mailbox.send(run.run.commands, "profile", 5)
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
            trace = json.loads(gzip.decompress((run.run.path / one.trace).read_bytes()))
            names = {event.get("name") for event in trace["traceEvents"]}
            assert names & {operation.name for operation in one.largest}
        # Each step is reported, those that were profiled too.
        assert run.steps_of(0) == list(range(1, end.summary.steps + 1))
