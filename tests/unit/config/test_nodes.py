"""Configurations of runs on several machines: what is split over nodes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.config.test_placement import machine
from tuiapp.trainers.config import slurm
from tuiapp.trainers.config.machine import NotHereError, own_address
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.config.placement import place, placement_problems
from tuiapp.trainers.config.plan import make_plan
from tuiapp.trainers.config.run_config import RunConfig, build_config


def on_nodes(**keys: object) -> RunConfig:
    return build_config({"launcher": "join", "nodes": 2, "network": "lo", "platform": "cpu", **keys})


@pytest.mark.parametrize(
    ("backend", "ranks", "of_first", "of_second"),
    [
        ("torch-ddp", [0, 1, 2, 3], [0, 1], [2, 3]),
        # One process a node, which reports for the node's devices.
        ("jax-sharding", [0, 2], [0], [2]),
    ],
)
def test_each_node_has_its_share_of_the_ranks(
    backend: str, ranks: list[int], of_first: list[int], of_second: list[int]
) -> None:
    plan = make_plan(on_nodes(backend=backend, devices=4))
    assert (list(plan.ranks), list(plan.ranks_of(0)), list(plan.ranks_of(1))) == (ranks, of_first, of_second)
    assert (plan.devices_of(0), plan.devices_of(1), plan.world_size) == (2, 2, 4)


@pytest.mark.parametrize(
    ("backend", "of_nodes"), [("torch-ddp", [[0, 1, 2, 3], [4, 5], [6]]), ("jax-sharding", [[0], [4], [6]])]
)
def test_nodes_with_unequally_many_devices(backend: str, of_nodes: list[list[int]]) -> None:
    given = on_nodes(nodes=1, backend=backend, devices_per_node="4+2+1", global_batch_size=42)
    config = place(given, machine(0, cores=8))
    assert (config.devices, config.nodes) == (7, 3)
    plan = make_plan(config)
    assert [list(plan.ranks_of(node)) for node in range(3)] == of_nodes
    assert plan.ranks == [rank for ranks in of_nodes for rank in ranks]
    assert [rank for first in plan.ranks for rank in plan.reported_by(first)] == list(range(7))


@pytest.mark.parametrize(
    ("keys", "examples"),
    [
        ({"devices_per_node": "2+1", "shares": "2:2:1", "global_batch_size": 50}, (20, 20, 10)),
        # Of nodes.
        ({"devices_per_node": "2+1", "shares": "5:1"}, (20, 20, 8)),
        ({"devices_per_node": "2+1", "shares": "20:20:8"}, (20, 20, 8)),
        ({"devices": 4, "shares": "30:18"}, (15, 15, 9, 9)),
        # Alike.
        ({"devices_per_node": "2+1", "shares": "2:1"}, ()),
        ({"launcher": "local", "nodes": 1, "network": "", "shares": "3:1"}, (36, 12)),
    ],
)
def test_shares_of_ranks_or_of_nodes(keys: dict[str, object], examples: tuple[int, ...]) -> None:
    assert make_plan(place(on_nodes(**keys), machine(0))).examples == examples


def test_devices_that_are_not_given_are_as_many_on_each_node() -> None:
    assert place(on_nodes(nodes=3), machine(0)).devices == 6
    assert place(on_nodes(platform="cuda"), machine(4)).devices == 8
    assert place(on_nodes(platform="cuda", global_batch_size=6), machine(4)).devices == 6


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"devices": 3}, "devices: 3 cannot be split evenly over 2 nodes; 2 or 4 can. Or say how many each has, as"),
        ({"devices_per_node": "4,2"}, "devices_per_node: '4,2' is not a number of devices for each node, as 4+2; for"),
        ({"devices_per_node": "4+0"}, "devices_per_node: '4+0' is not a number of devices for each node, as 4+2; for"),
        ({"devices_per_node": "4"}, "devices_per_node: '4' is not a number of devices for each node, as 4+2; for equ"),
        ({"devices_per_node": "4+2+1"}, "devices_per_node: 4+2+1 has 3 nodes, but nodes is 2."),
        ({"devices_per_node": "4+2", "devices": 8}, "4+2 makes 6 devices, but devices is 8."),
        ({"devices_per_node": "4+2", "launcher": "ssh", "hosts": ["b", "c"]}, "nodes: 2, but hosts has 2;"),
        (
            {"devices_per_node": "4+2", "backend": "jax-pmap"},
            "devices_per_node: 4+2 cannot be: jax.pmap takes as many devices of each process; use jax-sharding.",
        ),
        ({"devices": 4, "shares": "measured", "accumulate": 16}, "48 leaves a rank none: use 64 or more."),
        ({"devices": 2, "shares": "measured", "accumulate": 5}, "48 makes no 5 equal parts, which acc"),
        ({"devices": 2, "shares": "3"}, "shares: '3' is not allowed; it must be equal, measured, or whole"),
        ({"devices": 2, "shares": "3:0"}, "shares: '3:0' is not allowed; it must be equal, measured, or"),
        ({"devices": 4, "shares": "3:1:1"}, "shares: 3:1:1 has 3 numbers for 4 ranks on 2 nodes: give one for each."),
        ({"devices": 2, "shares": "3:2"}, "3:2 does not divide 48 examples into whole parts: 45 or 50 can"),
        ({"devices": 4, "shares": "15:1"}, "15:1 gives node 0 45 examples, which its 2 ranks cannot share equally."),
        ({"devices": 2, "shares": "3:1", "accumulate": 8}, "3:1 gives a rank 36 examples, which make no 8"),
        (
            {"devices": 2, "shares": "1:1", "accumulate": 16},
            "1:1 gives a rank 24 examples, which make no 16 equal parts.",
        ),
        (
            {"devices": 2, "shares": "3:1", "backend": "jax-sharding"},
            "shares: jax-sharding splits one array into equal parts; use torch-ddp or torch-fsdp or keras-torch.",
        ),
        ({"devices_per_node": "1+1", "backend": "torch-dp"}, "torch-dp is one process, on one machine; use torch-ddp"),
        ({"platform": "cuda", "device_ids": ["0"]}, "each node takes its own idle ones: leave it empty"),
        ({"launcher": "ssh"}, "nodes: 2, but hosts has 0; nodes counts them and this machine."),
        ({"launcher": "ssh", "nodes": 1, "hosts": ["b", "c"]}, "nodes: 1, but hosts has 2;"),
        ({"launcher": "ssh", "nodes": 1}, "nodes: 1 is this machine alone; ssh takes 2 or more."),
        ({"nodes": 1}, "nodes: 1 is this machine alone; join takes 2 or more. For this machine use launcher local."),
        ({"backend": "torch-dp", "devices": 2}, "torch-dp is one process, on one machine; use torch-ddp"),
        ({"launcher": "slurm", "platform": "auto"}, "platform: auto is decided by this machine, but the job runs on"),
        ({"launcher": "slurm", "slurm": "--comment='"}, "slurm: "),
        ({"master_port": "29510-29500"}, "master_port: '29510-29500' is no port or range of ports: use one of 1 to"),
        ({"port": "29500"}, "port: unknown key. Use 'master_port': that a firewall lets through"),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        on_nodes(**keys)
    assert said in str(caught.value)


@pytest.mark.parametrize("keys", [{}, {"backend": "script", "script": __file__}])
@pytest.mark.parametrize(
    ("key", "value"),
    [("devices_per_node", text) for text in ("0+0", "+", "4+", "a+b")] + [("mesh", "batch=0"), ("shares", "3:0")],
)
def test_what_cannot_be_read_is_refused_where_it_has_no_effect_too(
    keys: dict[str, object], key: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: {re.escape(repr(value))} is n"):
        build_config({**keys, key: value}, checks=[lambda config: placement_problems(config, machine(0))])


def test_a_job_on_gpus_says_how_many_if_this_machine_has_none() -> None:
    with pytest.raises(ConfigError, match="devices: 0 is as many as this machine has GPUs: none; say how many"):
        place(on_nodes(launcher="slurm", platform="cuda"), machine(0))


def test_a_network_that_is_not_there_is_refused_before_the_launch() -> None:
    with pytest.raises(ConfigError, match=r"network: 'eth7' is neither an interface nor an address of this machine"):
        place(on_nodes(network="eth7"), machine(0))
    assert own_address("lo") == own_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(NotHereError):
        own_address("10.255.255.1")


def test_the_users_own_options_of_a_job_come_last() -> None:
    config = on_nodes(launcher="slurm", slurm="-p gpu --time=4:00:00 --comment='two words'", requeue=True)
    lines = slurm.job_script(config, Path("/runs/20260101T000000-torch-ddp-net-ab12"), ["python", "-m", "x y"])
    assert lines.splitlines()[-4:] == [
        "#SBATCH -p gpu",
        "#SBATCH --time=4:00:00",
        "#SBATCH --comment='two words'",
        "exec python -m 'x y'",
    ]
    assert "#SBATCH --requeue" in lines.splitlines()


@pytest.mark.parametrize(
    ("options", "lead_s"),
    [
        ("", 120),
        ("-t 4:00:00", 120),
        ("--time=1-0", 120),
        ("-t UNLIMITED", 120),
        ("-t 0", 120),
        ("-t 1", 15),
        ("-p gpu -t2", 30),
        ("--time 1:30 --exclusive", 22),
        ("-t 1 --time=10", 120),
    ],
)
def test_a_short_job_is_not_asked_to_save_when_it_starts(options: str, lead_s: int) -> None:
    script = slurm.job_script(on_nodes(launcher="slurm", slurm=options), Path("/runs/r"), ["python"])
    assert f"#SBATCH --signal=B:USR1@{lead_s}" in script.splitlines()
