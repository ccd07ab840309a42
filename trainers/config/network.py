"""This machine's addresses, by which the nodes of a run reach one another."""

from __future__ import annotations

import socket


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
        raise NotHereError("this machine has no address but loopback; name another, such as lo.")
    known = ", ".join(f"{name} ({', '.join(addresses)})" for name, addresses in found.items() if addresses) or "none"
    raise NotHereError(f"{network!r} is neither an interface nor an address of this machine. It has: {known}.")


def interface_of(address: str) -> str:
    """The name of the interface with an address; "" if there is none."""
    import psutil

    return next(
        (name for name, some in psutil.net_if_addrs().items() if any(one.address == address for one in some)), ""
    )
