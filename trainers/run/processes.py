"""The processes that a supervisor starts: ranks, with their pipes and logs, and the reaper."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.files import make_private, open_own, user_cache
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.ports import ANY
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract.process_identity import identity
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.place import Place, bind_free


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules; -P keeps the working directory off the search path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def rank_environment(plan: Plan, token: str, place: Place) -> dict[str, str]:
    """The environment of all ranks of a node: torchrun's contract, and the devices.

    GPUs are chosen before any framework is imported, by UUID, because CUDA's indices are not NVML's.
    """
    config, local = plan.config, len(plan.ranks_of(place.node))
    cores = len(os.sched_getaffinity(0))
    backend = BACKENDS[config.backend]
    teams = config.devices if backend.threads_per_device and config.platform == "cpu" else local
    return {
        **({} if "TORCHINDUCTOR_CACHE_DIR" in os.environ else _torch_cache()),
        **place.interfaces(),
        **os.environ,
        "WORLD_SIZE": str(plan.processes),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(config.nodes),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        **({} if config.nodes > 1 else place.interfaces()),
        **device_environment(place.gpus, token),
        # More threads than cores make two ranks slower than one.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // teams)),
        "PYTHONUNBUFFERED": "1",
        **_allocator_environment(config),
        **(_nccl_environment() if backend.engine == "torch" else {}),
        **(_cpu_environment() if backend.engine == "torch" and config.platform == "cpu" else {}),
        **(_jax_environment(plan, place.node) if backend.engine == "jax" else {}),
        # Read when Keras is imported; otherwise it looks for TensorFlow.
        **({"KERAS_BACKEND": backend.keras_backend} if backend.keras_backend else {}),
        **{name: value for name, value in backend.environment if name not in os.environ},
    }


def device_environment(gpus: Sequence[str], token: str) -> dict[str, str]:
    """The chosen GPUs, and what marks a process as one of this run's."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        wire.TOKEN: token,
        wire.SUPERVISOR: identity(os.getpid()),
    }


def _torch_cache() -> dict[str, str]:
    """Where torch.compile caches its output: a restart clears PyTorch's default, /tmp, which stays if it cannot be."""
    kept = user_cache() / "torch"
    # PyTorch creates it on import, with the umask's mode; it holds code.
    with contextlib.suppress(OSError):
        make_private(kept)
        return {"TORCHINDUCTOR_CACHE_DIR": str(kept)} if os.access(kept, os.W_OK | os.X_OK) else {}
    return {}


def _allocator_environment(config: RunConfig) -> dict[str, str]:
    """Makes glibc keep the memory that a step frees for the next one.

    By default it returns every block of 32 MiB or more, and XLA takes one block for all of a step's temporary arrays:
    the kernel then maps and zeroes each page again. On the CPU that took half of a step of `net` at 48 examples.
    Settings the user has made are left alone.
    """
    if config.platform != "cpu" or any(
        name in ("LD_PRELOAD", "GLIBC_TUNABLES") or name.startswith("MALLOC_") for name in os.environ
    ):
        return {}
    return {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def _cpu_environment() -> dict[str, str]:
    """Silences DDP's warning about unused parameters: see `tuiapp.trainers.frameworks.torch.ranks.distribute`."""
    return {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def _nccl_environment() -> dict[str, str]:
    """Has PyTorch keep its last collectives in memory, for a hang's report, and write them if NCCL's own limit ends it.

    So do newer versions by themselves; 2000 is their number.
    """
    given = os.environ.keys()
    names = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    kept = {} if given & set(names) else {names[0]: "2000"}
    return kept | ({} if "TORCH_NCCL_DUMP_ON_TIMEOUT" in given else {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"})


def _jax_environment(plan: Plan, node: int) -> dict[str, str]:
    if plan.config.platform == "cuda":
        fraction = plan.jax_memory_fraction
        return {"JAX_PLATFORMS": "cuda", **({} if fraction is None else {"XLA_CLIENT_MEM_FRACTION": str(fraction)})}
    flags = [os.environ.get("XLA_FLAGS", "")]
    if plan.config.devices > 1 and "xla_cpu_multi_thread_eigen" not in flags[0]:
        # Devices that wait for each other in a collective hold threads of the pool that Eigen would split a single
        # device's arithmetic over: with too few left, none makes progress, and XLA aborts after 40 s.
        flags.append("--xla_cpu_multi_thread_eigen=false")
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(plan.devices_of(node)),
        "XLA_FLAGS": " ".join(flags).strip(),
    }


def start_reaper(run: RunDir, token: str, *, notify: bool = True) -> subprocess.Popen[bytes]:
    """Starts the process that ends this node's ranks if this process dies; with `notify` it sends the user's notice."""
    with open_own(run.supervisor_log, "ab") as log:
        return subprocess.Popen(
            python("tuiapp.trainers.run.reaper", str(os.getpid()), token, *([str(run.path)] if notify else [])),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def bind_rendezvous(address: str, ports: range = ANY) -> socket.socket:
    """Returns a listening socket on a free one of the ports, to be passed to rank 0; raises OSError."""
    listener = bind_free(address, ports)
    listener.listen(1024)
    return listener
