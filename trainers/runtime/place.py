"""Where a node's ranks are among those of a run, and over what they reach the others."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from trainers.config.machine import Machine
from trainers.config.run_config import RunConfig

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


class NotHereError(Exception):
    """This machine lacks what the run needs of it."""


def own_address(network: str = "") -> str:
    """An IPv4 address of this machine: that of an interface, or itself; without a name the first that is not loopback.

    Raises NotHereError.
    """
    # Its import costs 20 ms, and only runs on several nodes need it.
    import psutil

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    found = {
        name: [one.address for one in addresses if one.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
    }
    if network:
        if found.get(network):
            return found[network][0]
        if any(network in addresses for addresses in found.values()):
            return network
    else:
        others = [one for addresses in found.values() for one in addresses if not one.startswith("127.")]
        if others:
            return others[0]
    known = ", ".join(f"{name} ({', '.join(addresses)})" for name, addresses in found.items() if addresses) or "none"
    raise NotHereError(f"{network!r} is no interface or address of this machine. It has: {known}.")


def interface_of(address: str) -> str:
    """The name of the interface with an address; "" if there is none."""
    import psutil

    return next(
        (name for name, some in psutil.net_if_addrs().items() if any(one.address == address for one in some)), ""
    )


def pick_gpus(config: RunConfig, machine: Machine) -> tuple[str, ...]:
    """The UUIDs of this node's GPUs: the first of those that its environment, as Slurm's, leaves visible.

    Raises NotHereError if there are too few.
    """
    wanted = config.devices // config.nodes
    if config.platform != "cuda":
        return ()
    if config.device_ids:
        return config.device_ids
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = None if visible is None else [one.strip() for one in visible.split(",")]
    found = [gpu.uuid for gpu in machine.gpus if named is None or str(gpu.index) in named or gpu.uuid in named]
    if len(found) < wanted:
        why = machine.gpu_problem or f"it has {len(found)}"
        raise NotHereError(f"{socket.gethostname()} must give {wanted} GPUs: {why}.")
    return tuple(found[:wanted])
