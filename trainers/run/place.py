"""Where a node's ranks are among those of a run, and over what they reach the others."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from tuiapp.trainers.config.division import devices_of
from tuiapp.trainers.config.gpu_choice import pick
from tuiapp.trainers.config.machine import Machine, NotHereError
from tuiapp.trainers.config.ports import ANY
from tuiapp.trainers.config.run_config import RunConfig

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node's ranks are, and where they meet those of the others."""

    port: int
    """Of the rendezvous."""
    address: str = LOOPBACK
    node: int = 0
    interface: str = "lo"
    """Over which the collectives go, unless the user has named another in the environment."""
    gpus: tuple[str, ...] = ()
    """UUIDs of this node's."""

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


def pick_gpus(config: RunConfig, machine: Machine, node: int) -> tuple[str, ...]:
    """The UUIDs of the node's GPUs, which is this machine; raises NotHereError if there are too few."""
    wanted = devices_of(config, node)
    if config.platform != "cuda":
        return ()
    if config.device_ids:
        return config.device_ids
    found = pick(machine.gpus, wanted)
    if len(found) < wanted:
        why = machine.gpu_problem or machine.gpu_limit or f"it has {len(found)}"
        raise NotHereError(f"{socket.gethostname()} must give {wanted} GPUs as node {node}: {why}.")
    return tuple(gpu.uuid for gpu in found)
