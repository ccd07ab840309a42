"""What rank processes find in their environment, and the ports on which they meet."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import msgspec
import pytest

from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import ANY, RunConfig, read_ports
from tuiapp.trainers.run.rank_environment import LOOPBACK, Rendezvous, bind_free, rank_environment


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, and an environment in which nobody has chosen anything."""
    chosen = {"XLA_FLAGS", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "KERAS_BACKEND", "LD_PRELOAD", "GLIBC_TUNABLES"}
    chosen.add("OMP_NUM_THREADS")
    for name in chosen | {name for name in os.environ if name.startswith("MALLOC_")}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})


def environment_of(config: RunConfig) -> dict[str, str]:
    config = msgspec.structs.replace(config, devices=config.devices or 2)
    return rank_environment(make_plan(config), "token", Rendezvous(4711, gpus=config.device_ids))


def test_torch_ranks_get_torchruns_contract() -> None:
    environment = environment_of(RunConfig(platform="cpu", devices=4))
    assert (environment["WORLD_SIZE"], environment["MASTER_PORT"], environment["OMP_NUM_THREADS"]) == ("4", "4711", "1")
    assert not {"JAX_PLATFORMS", "KERAS_BACKEND"} & environment.keys()


def test_torch_keeps_its_last_collectives_unless_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"
    for name in names:
        monkeypatch.delenv(name, raising=False)
    ddp, jax = RunConfig(platform="cpu"), RunConfig(backend="jax-pmap", platform="cpu")
    found, without = environment_of(ddp), environment_of(jax)
    assert [found.get(name) for name in names] == ["2000", None, "1"]
    assert not without.keys() & set(names)
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "0")
    monkeypatch.setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    found = environment_of(ddp)
    assert [found.get(name) for name in names] == [None, "0", "0"]


def test_jax_gets_its_cpu_devices_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    environment = environment_of(RunConfig(backend="jax-pmap", platform="cpu", devices=4))
    assert (environment["JAX_PLATFORMS"], environment["JAX_NUM_CPU_DEVICES"]) == ("cpu", "4")
    # What the user asks of XLA stays.
    assert environment["XLA_FLAGS"].split() == ["--xla_dump_to=/tmp/x", "--xla_cpu_multi_thread_eigen=false"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true")
    environment = environment_of(RunConfig(backend="jax-pmap", platform="cpu", devices=4))
    assert environment["XLA_FLAGS"] == "--xla_cpu_multi_thread_eigen=true"


def test_jax_on_gpus_does_not_fall_back_to_the_cpu() -> None:
    config = RunConfig(backend="jax-sharding", platform="cuda", devices=1, device_ids=("GPU-1",))
    environment = environment_of(config)
    assert (environment["JAX_PLATFORMS"], environment["CUDA_VISIBLE_DEVICES"]) == ("cuda", "GPU-1")
    assert "XLA_FLAGS" not in environment


def test_what_torch_compiles_is_kept(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    environment = environment_of(RunConfig(platform="cpu"))
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == str(home / "cache" / "tuiapp" / "torch")
    # Where the user wants it elsewhere it stays there.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    environment = environment_of(RunConfig(platform="cpu"))
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/elsewhere"


@pytest.mark.parametrize("computes_with", ["jax", "torch"])
def test_keras_is_told_what_to_compute_with_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, computes_with: str
) -> None:
    # The user's own choice for other programs.
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    environment = environment_of(RunConfig(backend=f"keras-{computes_with}", platform="cpu", devices=2))
    assert environment["KERAS_BACKEND"] == computes_with
    assert ("JAX_NUM_CPU_DEVICES" in environment) == (computes_with == "jax")


def test_each_of_mxnets_cpu_contexts_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    for devices, threads in ((1, "8"), (2, "4"), (16, "1")):
        config = RunConfig(backend="mxnet-gluon", platform="cpu", devices=devices)
        environment = environment_of(config)
        assert environment["OMP_NUM_THREADS"] == threads
    assert (environment["MXNET_USE_SIGNAL_HANDLER"], environment["NVIDIA_TF32_OVERRIDE"]) == ("0", "0")
    # The user's own choice stays.
    assert environment["OMP_WAIT_POLICY"] == "active"


def test_on_the_cpu_freed_memory_is_kept_for_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = environment_of(RunConfig(platform="cpu", devices=2))
    assert (kept["MALLOC_MMAP_MAX_"], kept["MALLOC_TRIM_THRESHOLD_"]) == ("0", str(1 << 30))
    gpu = RunConfig(platform="cuda", devices=1, device_ids=("GPU-1",))
    assert "MALLOC_MMAP_MAX_" not in environment_of(gpu)
    # Whoever brings an allocator of their own knows better.
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")
    assert "MALLOC_MMAP_MAX_" not in environment_of(RunConfig(platform="cpu", devices=2))


def test_a_reserved_port_is_for_the_script_alone() -> None:
    with bind_free(LOOPBACK) as holder:
        port = holder.getsockname()[1]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("0.0.0.0", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port)):
                pass


@pytest.mark.parametrize(
    ("text", "ports"), [("", ANY), ("29500", range(29500, 29501)), (" 29500 - 29510 ", range(29500, 29511))]
)
def test_ports_that_are_read(text: str, ports: range) -> None:
    assert read_ports(text) == ports


def test_the_first_free_port_of_a_range_is_taken() -> None:
    with bind_free(LOOPBACK) as taken:
        port: int = taken.getsockname()[1]
        with bind_free(LOOPBACK, range(port, min(port + 100, 65_536))) as other:
            assert port < other.getsockname()[1] < port + 100


def test_a_range_without_a_free_port_is_refused() -> None:
    with bind_free(LOOPBACK) as taken:
        taken.listen()
        port: int = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"none of the ports {port} to {port} of 127.0.0.1 is free") as caught:
            bind_free(LOOPBACK, range(port, port + 1))
    assert caught.value.errno == errno.EADDRINUSE
