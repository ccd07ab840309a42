"""How much of GPUs that others use JAX is told to take: decided from what the scripted driver says is free."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from tests.kit.fake_nvml import GIB, FakeNvml, gpu, needs_compiler, several
from tuiapp.trainers.config.catalog import Backend
from tuiapp.trainers.config.machine import inspect_machine
from tuiapp.trainers.config.memory import JAX_MEMORY_VARIABLES, estimate_memory, jax_pool_bytes, shortages
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place
from tuiapp.trainers.config.plan import Plan, make_plan
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.run.rank_environment import Rendezvous, rank_environment
from tuiapp.view.launch_warnings import memory_warning

pytestmark = needs_compiler

JAX = RunConfig(backend="jax-sharding", model="mlp", platform="cuda", devices=1, epochs=1)


@pytest.fixture(autouse=True)
def _nothing_said(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX as if it were installed for CUDA, an environment that says nothing of its memory, and the scripted driver."""
    monkeypatch.setattr(Backend, "without_gpus", lambda *_: "")
    for name in (*JAX_MEMORY_VARIABLES, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    nvml.install(monkeypatch)
    # This process looks for libraries where it did when it was started; the one that asks the driver finds this one.
    monkeypatch.setattr("tuiapp.trainers.config.machine.ctypes", SimpleNamespace(CDLL=lambda name: None))


def told(plan: Plan) -> str | None:
    """What the ranks of a plan read."""
    return rank_environment(plan, "token", Rendezvous(4711, gpus=plan.config.device_ids)).get("XLA_CLIENT_MEM_FRACTION")


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["jax-sharding", "jax-pmap", "keras-jax"])
def test_what_others_leave(backend: str, nvml: FakeNvml) -> None:
    nvml.say(several(1, memory_used=50 * GIB))
    plan = prepare(msgspec.structs.replace(JAX, backend=backend), inspect_machine())
    # 30 of 80 GiB are free, and 1 of them is for what JAX takes beside its pool.
    assert plan.jax_memory_fraction == 0.3625
    assert told(plan) == "0.3625"
    assert int(0.3625 * 80 * GIB) == jax_pool_bytes(plan.config, inspect_machine())


@pytest.mark.nightly
def test_the_fullest_of_the_chosen_counts(nvml: FakeNvml) -> None:
    nvml.say([gpu(f"GPU-{index}", memory_used=used * GIB) for index, used in enumerate((40, 60, 79, 1))])
    config = msgspec.structs.replace(JAX, devices=2, device_ids=("0", "1"))
    assert prepare(config, inspect_machine()).jax_memory_fraction == 0.2375
    config = msgspec.structs.replace(JAX, devices=1, device_ids=("3",))
    assert prepare(config, inspect_machine()).jax_memory_fraction is None


@pytest.mark.nightly
@pytest.mark.parametrize(("used", "fraction"), [(0, None), (19 * GIB, None), (20 * GIB, 0.7375), (79 * GIB, 0.0062)])
def test_jax_takes_its_own_share_where_that_is_free(used: int, fraction: float | None, nvml: FakeNvml) -> None:
    nvml.say(several(1, memory_used=used))
    plan = prepare(JAX, inspect_machine())
    assert plan.jax_memory_fraction == fraction
    assert told(plan) == (None if fraction is None else str(fraction))


@pytest.mark.nightly
@pytest.mark.parametrize("name", JAX_MEMORY_VARIABLES)
def test_what_the_user_says_stays(name: str, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.say(several(1, memory_used=80 * GIB))
    monkeypatch.setenv(name, "0.5")
    plan = prepare(JAX, inspect_machine())
    assert plan.jax_memory_fraction is None
    # JAX refuses the older name and the newer one at once.
    environment = rank_environment(plan, "token", Rendezvous(4711))
    assert {one: environment.get(one) for one in JAX_MEMORY_VARIABLES if one in environment} == {name: "0.5"}


def test_too_little_for_jax_itself_is_refused(nvml: FakeNvml) -> None:
    nvml.say(several(2, memory_used=80 * GIB - GIB // 4) + gpu("GPU-free"))
    with pytest.raises(ConfigError) as refused:
        place(msgspec.structs.replace(JAX, device_ids=("0",)), inspect_machine())
    (problem,) = refused.value.problems
    assert problem.key == "device_ids"
    assert problem.message == (
        "GPU 0 (Fake 0) has 0.25 of 80 GiB free, but JAX needs 0.5 GiB to start. Choose other GPUs, end what uses "
        "them, or use platform cpu."
    )
    assert place(JAX, inspect_machine()).device_ids == ("GPU-free",)


@pytest.mark.nightly
def test_a_node_decides_for_the_gpus_that_it_picks(nvml: FakeNvml) -> None:
    nvml.say(several(2, memory_used=50 * GIB) + gpu("GPU-free"))
    config = msgspec.structs.replace(JAX, devices=4, nodes=2, launcher="join", global_batch_size=48)
    plan = make_plan(config)
    assert plan.on_gpus(inspect_machine(), ("GPU-0000", "GPU-0001")).jax_memory_fraction == 0.3625
    assert plan.on_gpus(inspect_machine(), ("GPU-free",)).jax_memory_fraction is None


@pytest.mark.nightly
def test_the_estimate_counts_what_jax_takes_beside_its_pool(nvml: FakeNvml) -> None:
    large = msgspec.structs.replace(JAX, model="resnet18", global_batch_size=1024)
    estimate = estimate_memory(large)
    assert estimate.total > GIB
    nvml.say(several(1, memory_used=80 * GIB - estimate.total - GIB))
    config = place(large, inspect_machine())
    assert not shortages(config, inspect_machine(), estimate)
    nvml.say(several(1, memory_used=80 * GIB - estimate.total - GIB + 1))
    assert "free on GPU 0: try accumulate = 2" in memory_warning(config, inspect_machine(), estimate)
    torch = msgspec.structs.replace(config, backend="torch-ddp")
    assert not shortages(torch, inspect_machine(), estimate)
