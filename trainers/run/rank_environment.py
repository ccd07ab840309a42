"""What ranks find in their environment: where they meet, their devices, torchrun's contract.

Of a user's own script nothing of ours runs in its process: it is what `python -u train.py ARGUMENTS` is in a shell.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.division import node_of
from tuiapp.trainers.config.files import make_private, user_cache
from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.config.run_config import ANY, RunConfig
from tuiapp.trainers.config.script import command, variables
from tuiapp.trainers.contract.process_identity import identity
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_end import ELASTIC_ERROR_FILE

LOOPBACK = "127.0.0.1"


RESUME = "TUIAPP_RESUME"
"""Environment variable: "1" in every attempt after the first; the script loads its own checkpoint then."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where a node's ranks are, and where they meet those of the others."""

    port: int
    """The rendezvous' port."""
    address: str = LOOPBACK
    node: int = 0
    interface: str = "lo"
    """Network interface of the collectives, unless the user has named another in the environment."""
    gpus: tuple[str, ...] = ()
    """UUIDs of this node's GPUs."""

    def interfaces(self) -> dict[str, str]:
        return {"GLOO_SOCKET_IFNAME": self.interface, "NCCL_SOCKET_IFNAME": self.interface} if self.interface else {}


def bind_free(address: str, ports: range = ANY) -> socket.socket:
    """Returns a socket bound to the first free one of the ports; raises OSError if none is.

    Until it is closed nobody else is given the port. A server that sets SO_REUSEADDR, as PyTorch's and JAX's do, can
    listen on it.
    """
    # A port that an ended run has left waiting for its last packets is taken where no other is free.
    for reuse in (0, 1):
        for port in ports:
            bound = socket.socket()
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            try:
                bound.bind((address, port))
            except OSError as error:
                bound.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                return bound
    raise OSError(errno.EADDRINUSE, f"none of the ports {ports[0]} to {ports[-1]} of {address} is free")


def bind_rendezvous(address: str, ports: range = ANY) -> socket.socket:
    """Returns a listening socket on a free one of the ports, to be passed to rank 0; raises OSError."""
    listener = bind_free(address, ports)
    listener.listen(1024)
    return listener


def rank_environment(plan: Plan, token: str, rendezvous: Rendezvous) -> dict[str, str]:
    """Returns the environment of all ranks of a node: torchrun's contract, and the devices.

    GPUs are chosen before any framework is imported, by UUID, because CUDA's indices are not NVML's.
    """
    config, local = plan.config, len(plan.ranks_of(rendezvous.node))
    cores = len(os.sched_getaffinity(0))
    backend = BACKENDS[config.backend]
    log_level = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
    teams = config.devices if backend.threads_per_device and config.platform == "cpu" else local
    return {
        **({} if "TORCHINDUCTOR_CACHE_DIR" in os.environ else _torch_cache()),
        **rendezvous.interfaces(),
        **os.environ,
        "WORLD_SIZE": str(plan.processes),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rendezvous.node),
        "GROUP_WORLD_SIZE": str(config.nodes),
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
        **({} if config.nodes > 1 else rendezvous.interfaces()),
        **device_environment(rendezvous.gpus, token),
        # More threads than cores make two ranks slower than one.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // teams)),
        "PYTHONUNBUFFERED": "1",
        **_allocator_environment(config),
        **(_nccl_environment() if backend.engine == "torch" else {}),
        # See `tuiapp.trainers.frameworks.torch.ranks.distribute`: DDP warns of unused parameters.
        **({"TORCH_CPP_LOG_LEVEL": log_level} if backend.engine == "torch" and config.platform == "cpu" else {}),
        **(_jax_environment(plan, rendezvous.node) if backend.engine == "jax" else {}),
        # Read when Keras is imported; otherwise it looks for TensorFlow.
        **({"KERAS_BACKEND": backend.keras_backend} if backend.keras_backend else {}),
        **{name: value for name, value in backend.environment if name not in os.environ},
    }


def device_environment(gpus: Sequence[str], token: str) -> dict[str, str]:
    """Returns the chosen GPUs, and what marks a process as one of this run's."""
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


def _nccl_environment() -> dict[str, str]:
    """Has PyTorch keep its last collectives in memory, for a hang's report, and write them if NCCL's own limit ends it.

    So do newer versions by themselves; 2000 is their number.
    """
    present = os.environ.keys()
    names = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    kept = {} if present & set(names) else {names[0]: "2000"}
    return kept | ({} if "TORCH_NCCL_DUMP_ON_TIMEOUT" in present else {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"})


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


@dataclass(frozen=True, slots=True)
class ScriptStart:
    """What all ranks of a script have in common."""

    command: list[str]
    working_directory: str
    world_size: int | None
    """None for a single process that owns all devices: it gets no rank, as when started by hand."""
    variables: Mapping[str, str]
    """The variables of the key `environment`."""
    run_id: str
    ranks: tuple[int, ...] = (1,)
    """Rank processes of each node."""

    def environment(self, rank: int, local_rank: int, directory: Path, shared: Mapping[str, str]) -> dict[str, str]:
        """Returns a rank's whole environment; its files are in `directory`, `shared` is that of all its node's ranks.

        The variables are those of torchrun:
        https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
        """
        if self.world_size is None:
            return {**shared, **self.variables}
        size, node = str(self.world_size), node_of(rank, self.ranks)
        elastic = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": str(self.ranks[node]),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(len(self.ranks)),
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": size,
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": str(directory / ELASTIC_ERROR_FILE),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }
        return {**shared, **elastic, **self.variables}


def script_start(run: RunDir, plan: Plan) -> ScriptStart:
    """Returns what a plan's script is started with."""
    config = plan.config
    return ScriptStart(
        command=command(config, plan.python or sys.executable),
        working_directory=config.working_directory,
        world_size=plan.processes if config.processes == "per-device" or config.nodes > 1 else None,
        variables=variables(config),
        run_id=run.run_id,
        ranks=tuple(len(plan.ranks_of(node)) for node in range(config.nodes)),
    )


def script_environment(run: RunDir, listener: str, plan: Plan, rendezvous: Rendezvous, attempt: int) -> dict[str, str]:
    """Returns what a script's ranks get beside the devices and the run's token; the rendezvous's port is free for them.

    They report to the run by the socket `listener`.
    """
    distributed = plan.config.processes == "per-device" or plan.config.nodes > 1
    alone = plan.config.processes == "one" and plan.config.platform == "cpu"
    cores = len(os.sched_getaffinity(0))
    # None, if somebody else starts them.
    local = len(plan.ranks_of(rendezvous.node)) or 1
    devices = plan.devices_of(rendezvous.node)
    defaults = {
        # A crash in native code leaves the Python stacks in stderr.log.
        "PYTHONFAULTHANDLER": "1",
        # The processes that it starts write at once, too.
        "PYTHONUNBUFFERED": "1",
        **(rendezvous.interfaces() if distributed else {}),
        # More threads than cores make two ranks slower than one.
        **({"OMP_NUM_THREADS": str(max(1, cores // local))} if distributed else {}),
        # The CPU devices that JAX makes in a process that owns them all.
        **({"JAX_NUM_CPU_DEVICES": str(devices)} if alone and devices > 1 else {}),
    }
    return {
        **defaults,
        **os.environ,
        **({"MASTER_ADDR": rendezvous.address, "MASTER_PORT": str(rendezvous.port)} if distributed else {}),
        **({RESUME: "1"} if attempt > 1 else {}),
        wire.RUN_DIR: str(run.path),
        wire.LISTENER: listener,
    }
