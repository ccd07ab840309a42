"""Runs on several nodes: each has a state and samples of its own."""

from __future__ import annotations

import pytest

from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import LogLine, Node, RankStarted


def test_a_hosts_sample_is_its_nodes() -> None:
    state = fold(nodes.running(2, 4))
    samples = [node.sample for node in state.nodes.values()]
    assert samples[0] is not None
    assert samples[1] is not None
    assert state.host is samples[0]
    assert samples[1].node == 1
    assert samples[1].memory_used_bytes == samples[0].memory_used_bytes + 100 * h.MIB
    # The graphs of the supervisor's machine show it alone.
    assert min(value or 0.0 for value in state.host_history.cpu) > 40


def test_each_has_its_host_its_state_and_its_ranks() -> None:
    state = fold(nodes.troubled())
    assert [(node.host, node.status) for node in state.nodes.values()] == [
        ("gpubox", "joined"), ("gpubox02", "joined"), ("gpubox03", "silent"), ("gpubox04", "lost"),
    ]  # fmt: skip
    assert [state.node_of(rank) for rank in (0, 7, 8, 31)] == [0, 0, 1, 3]
    assert state.ranks_of(1) == list(range(8, 16))


def test_nodes_that_nobody_expected_and_ranks_in_any_order() -> None:
    """As of a job that mpirun has started: how many nodes it has is not known before they join."""
    events = [
        h.started(4),
        *(Node(node=node, host=nodes.host(node), state="joined", **h.at(0.4)) for node in (2, 1)),
        *(
            RankStarted(rank=rank, node=node, pid=rank, device="cpu", **h.at(0.5))
            for rank, node in ((0, 0), (3, 1), (1, 2))
        ),
    ]
    state = fold(events)
    assert [(node.number, node.host) for node in state.nodes.values()] == [(n, nodes.host(n)) for n in range(3)]
    assert [state.node_of(rank) for rank in (0, 3, 1)] == [0, 1, 2]
    assert state.ranks_of(2) == [1]


def test_one_that_is_back_has_joined() -> None:
    back = Node(node=2, host=nodes.host(2), state="back", **h.at(9.0))
    assert fold([*nodes.troubled(), back]).nodes[2].status == "joined"


def test_one_machine_has_no_nodes() -> None:
    state = fold(h.running(2))
    assert state.nodes == {}
    assert {entry.node for entry in state.log} == {None}


def test_those_that_have_not_joined_are_awaited() -> None:
    state = fold(nodes.running(3, 6)[:1])
    assert [node.status for node in state.nodes.values()] == ["joined", "awaited", "awaited"]


@pytest.mark.parametrize(("rank", "node", "shown"), [(3, 1, 1), (0, 0, 0), (None, 1, 1), (3, 0, 1)])
def test_the_log_knows_the_node(rank: int | None, node: int, shown: int) -> None:
    """Of a rank it is the rank's, even if the supervisor says something of it."""
    line = LogLine(rank=rank, node=node, stream="stdout" if rank is not None else "run", text="hello", **h.at(9.0))
    assert fold([*nodes.running(2, 4), line]).log[-1].node == shown


def test_the_stacks_of_a_hang_are_no_lines_of_the_log() -> None:
    """Of 512 ranks they were a tenth of all that it keeps."""
    assert len(fold(nodes.hanging()).log) == len(fold(nodes.running()).log) + 1
