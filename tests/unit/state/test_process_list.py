"""The list of processes: the run's own marked, sorted by a key."""

from __future__ import annotations

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.view.devices.drawing import plain
from tuiapp.view.devices.processes import (
    PROCESS_KEYS,
    ProcessKey,
    ProcessRow,
    Seen,
    process_rows_of,
    process_table,
    sort_keys,
)
from tuiapp.view.devices.view import gpu_views

SEEN = {
    4100: Seen(1, "ada", 1.0, 60 * h.MIB, "python -m tuiapp.trainers.run.supervisor"),
    4121: Seen(4100, "ada", 97.0, 900 * h.MIB, "python -m tuiapp.trainers.rank.process 0"),
    4122: Seen(4100, "ada", 91.0, 901 * h.MIB, "python -m tuiapp.trainers.rank.process 1"),
    4300: Seen(4121, "ada", 12.0, 80 * h.MIB, "python loader"),
    771: Seen(1, "grace", 350.0, 9 * h.GIB, "python3 other.py"),
    9: Seen(1, "root", None, h.MIB, "sshd"),
}


def rows_of(events: list[AnyEvent], sort: ProcessKey = "rank") -> list[ProcessRow]:
    state = fold(events)
    return process_rows_of(state, gpu_views(state), SEEN, sort)


def test_the_run_s_own_processes_come_first_and_are_marked() -> None:
    rows = rows_of(h.running(2))
    assert [(row.pid, row.role) for row in rows] == [
        (4121, "rank 0"), (4300, "of rank 0"), (4122, "rank 1"), (4100, "supervisor"), (771, ""), (9, ""),
    ]  # fmt: skip
    heading, first, *others = [plain(one) for one in process_table(rows, 180, 9, "rank")]
    assert "rank ▾" in heading
    assert first.startswith("a ")
    assert "python -m tuiapp.trainers.rank.process 0" in first
    assert "grace" in others[3]
    # Nobody knows the use of a process that was seen once.
    assert "–" in others[4]


def test_it_is_sorted_by_a_key() -> None:
    for key in PROCESS_KEYS:
        assert any("▾" in plain(one) for one in process_table(rows_of(d.in_trouble(8), key), 150, 20, key)[:1]), key
    assert rows_of(h.running(2), "CPU %")[0].pid == rows_of(h.running(2), "memory")[0].pid == 771
    assert rows_of(h.running(2), "pid")[0].pid == 9


def test_strangers_on_the_run_s_gpus_have_a_sign() -> None:
    rows = rows_of(d.in_trouble(8), "GPU memory")
    stranger = next(row for row in rows if row.pid == 771)
    assert (stranger.gpus, stranger.shares, stranger.user) == ([6], True, "grace")
    lines = [plain(one) for one in process_table(rows, 115, 30, "GPU memory")]
    assert any(one.startswith("!") and " 771 " in one for one in lines)
    assert "GPU memory ▾" in lines[0]
    assert all(len(one) <= 115 for one in lines)


def test_those_that_do_not_fit_are_counted() -> None:
    lines = [plain(one) for one in process_table(rows_of(h.running(2)), 180, 3, "rank")]
    assert len(lines) == 4
    assert "and 4 more" in lines[-1]


def test_keys_that_nothing_has_are_left_out() -> None:
    assert sort_keys(rows_of(d.in_trouble(8))) == list(PROCESS_KEYS)
    assert sort_keys(rows_of([h.host_sample(1.0)])) == ["CPU %", "memory", "pid"]
