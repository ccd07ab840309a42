"""Stacks of many ranks: those at the same call are together, the odd ones first."""

from __future__ import annotations

from tuiapp.trainers.contract.events import Stacks
from tuiapp.widgets.failure_panel import group_stacks

WAITS = """  File "/venv/torch/distributed_c10d.py", line 2810 in all_reduce
  File "/home/ada/train.py", line 9 in step"""
LOADS = """  File "/home/ada/data.py", line 21 in load
  File "/home/ada/train.py", line 7 in step"""


def stacks(rank: int, main: str, other: str = "") -> Stacks:
    """As `faulthandler` writes them: no two processes have threads of the same address."""
    beside = f"Thread 0x{rank:016x} (most recent call first):\n{other}\n\n" if other else ""
    return Stacks(
        rank=rank, pid=1000 + rank, text=f"{beside}Current thread 0x{rank:016x} (most recent call first):\n{main}"
    )


def test_ranks_at_the_same_call_are_one_group_after_the_odd_ones() -> None:
    found = group_stacks({rank: stacks(rank, LOADS if rank in (32, 40) else WAITS) for rank in range(512)})
    assert [group.ranks for group in found] == [[32, 40], [rank for rank in range(512) if rank not in (32, 40)]]
    assert found[0].main == LOADS.splitlines()
    assert found[1].main == WAITS.splitlines()


def test_the_rank_that_a_hang_names_comes_first() -> None:
    found = group_stacks({rank: stacks(rank, LOADS if rank == 0 else WAITS) for rank in range(4)}, first=2)
    assert [group.ranks for group in found] == [[1, 2, 3], [0]]


def test_other_threads_do_not_separate_ranks() -> None:
    """A reporter or a data loader is at another call in each."""
    lines = [f'  File "/venv/threading.py", line {line} in wait' for line in (3, 4)]
    (group,) = group_stacks({rank: stacks(rank, WAITS, line) for rank, line in enumerate(lines)})
    assert group.ranks == [0, 1]
    assert group.main == WAITS.splitlines()
    assert group.others[1:] == [lines[0]]


def test_what_is_no_list_of_threads_is_shown_whole() -> None:
    (group,) = group_stacks({0: Stacks(rank=0, pid=1, text="<no Python frame>")})
    assert (group.main, group.others) == (["<no Python frame>"], [])
