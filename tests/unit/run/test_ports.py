"""The ports that a firewall lets through."""

from __future__ import annotations

import errno
import socket

import pytest

from tuiapp.trainers.config.ports import ANY, read_ports
from tuiapp.trainers.run.rank_environment import LOOPBACK, bind_free


@pytest.mark.parametrize(
    ("text", "ports"), [("", ANY), ("29500", range(29500, 29501)), (" 29500 - 29510 ", range(29500, 29511))]
)
def test_ports_that_are_read(text: str, ports: range) -> None:
    assert read_ports(text) == ports


@pytest.mark.parametrize("text", ["0", "any", "29510-29500", "1-65536", "29500,29501", "29500-", "-1"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(ValueError, match="is no port or range of ports"):
        read_ports(text)


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


def test_a_port_that_an_ended_run_left_is_free() -> None:
    with bind_free(LOOPBACK) as server:
        server.listen()
        port: int = server.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)):
            # Whoever closes first keeps its port until late packets have died out.
            server.accept()[0].close()
    bind_free(LOOPBACK, range(port, port + 1)).close()
