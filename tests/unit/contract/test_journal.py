"""The journal, written and read while it grows, also on a disk that is full."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.specimens import specimens
from tuiapp.trainers.contract.events import AnyEvent, LogLine, Phase, encode
from tuiapp.trainers.contract.journal import MAX_LINE_BYTES, READ_BYTES, JournalReader, JournalWriter, journal_end


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def line(text: str) -> LogLine:
    return LogLine(rank=0, stream="stdout", text=text)


def write(journal: Path, *events: AnyEvent) -> None:
    writer = JournalWriter(journal)
    writer.append(events)
    writer.close()


def read_all(reader: JournalReader) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    while more := reader.read():
        events += more
    return events


def numbered(events: list[AnyEvent], first: int = 1) -> list[AnyEvent]:
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, first)]


def texts(events: list[AnyEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, LogLine)]


def test_events_come_back_numbered_and_in_order(journal: Path) -> None:
    events = specimens()
    write(journal, *events)
    assert read_all(JournalReader(journal)) == numbered(events)
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def test_the_next_writer_goes_on_counting_after_a_type_it_does_not_know(journal: Path) -> None:
    write(journal, line("a"))
    with journal.open("ab") as file:
        file.write(b'{"type":"event-of-the-future","seq":41}\n')
    write(journal, line("b"))
    assert [event.seq for event in read_all(JournalReader(journal))] == [1, 42]


def test_a_batch_is_one_write(journal: Path) -> None:
    writer, reader = JournalWriter(journal), JournalReader(journal)
    assert reader.read() == []
    writer.append([line("a"), line("b")])
    assert texts(reader.read()) == ["a", "b"]
    assert reader.read() == []
    writer.append([], durable=True)
    assert reader.read() == []
    writer.append([line("c")], durable=True)
    assert texts(reader.read()) == ["c"]
    writer.close()
    assert writer.blocked is None
    assert writer.dropped == 0


DAMAGE = st.tuples(st.just("damage"), st.binary(max_size=60).map(lambda data: data.replace(b'{"type"', b"")))
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 5)),
    st.tuples(st.just("tear"), st.integers(1, 400)),
    st.tuples(st.just("read")),
    DAMAGE,
)


@given(st.lists(STEPS, max_size=25), st.sampled_from([48, 4096]))
def test_whatever_happens_to_it_between_its_writers(steps: list[tuple[Any, ...]], chunk_bytes: int) -> None:
    """Torn after its last whole record, or with damage between records: nobody loses or doubles another record."""
    with tempfile.TemporaryDirectory() as directory:
        journal = Path(directory, "events.jsonl")
        reader, came, written = JournalReader(journal, chunk_bytes=chunk_bytes), [], 0
        for what, *how in steps:
            match what, *how:
                case "write", count:
                    write(journal, *[line(f"{written + number}") for number in range(count)])
                    written += count
                case "tear", size:
                    # Half of a record, as of a writer that dies: it never was whole.
                    with journal.open("ab") as file:
                        file.write(encode(line("torn " * 100))[:size])
                case "damage", data:
                    with journal.open("ab") as file:
                        file.write(b"\n" + data + b"\n")
                case "read", *_:
                    came += read_all(reader)
        came += read_all(reader)
        events = read_all(JournalReader(journal))
        assert texts(came) == texts(events) == [f"{number}" for number in range(written)]
        assert [event.seq for event in events] == sorted({event.seq for event in events})


def test_a_line_is_taken_once_it_is_whole(journal: Path) -> None:
    events = specimens()
    data, reader = b"".join(map(encode, events)), JournalReader(journal)
    came: list[AnyEvent] = []
    with journal.open("ab", buffering=0) as file:
        for start in range(0, len(data), 7):
            file.write(data[start : start + 7])
            came += reader.read()
    assert came == events


def test_a_long_line_is_read(journal: Path) -> None:
    long = line("x" * (3 * READ_BYTES))
    write(journal, line("a"), long, line("b"))
    assert [len(text) for text in texts(read_all(JournalReader(journal)))] == [1, 3 * READ_BYTES, 1]


@pytest.mark.parametrize("length", [READ_BYTES, MAX_LINE_BYTES, 2 * MAX_LINE_BYTES + 5])
def test_what_stands_behind_damage_is_read_at_once(journal: Path, length: int) -> None:
    write(journal, line("a"))
    with journal.open("ab") as file:
        file.write(b"\x00" * length + b"\n")
    write(journal, line("b"))
    with journal.open("ab") as file:
        file.write(b"\x00" * length + b"\n")
    reader = JournalReader(journal)
    events = read_all(reader)
    assert texts(events) == ["a", "b"]
    assert [event.seq for event in events] == [1, 2]
    assert reader.offset == journal.stat().st_size


@pytest.mark.parametrize("after", [1, 2 * MAX_LINE_BYTES])
def test_a_reader_waits_at_a_torn_tail_however_long(journal: Path, after: int) -> None:
    write(journal, line("a"))
    whole = journal.stat().st_size
    with journal.open("ab") as file:
        file.write(b"\x00" * (MAX_LINE_BYTES + 5))
    reader = JournalReader(journal)
    assert texts(read_all(reader)) == ["a"]
    with journal.open("ab") as file:
        file.write(b"\x00" * MAX_LINE_BYTES)
    assert reader.read() == []
    assert reader.offset == whole
    # The next writer cuts it off; by then the reader has perhaps slept until the journal is longer than before.
    events: list[AnyEvent] = [line("b" * 100_000)] * (after // 100_000 + 1)
    write(journal, *events)
    assert texts(read_all(reader)) == texts(events)


def test_much_that_is_not_known_does_not_hide_what_follows(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In chunks so small that there are more of them than Python could nest calls.
    monkeypatch.setattr("tuiapp.trainers.contract.journal.READ_BYTES", 64)
    journal.write_bytes(b'{"type":"event-of-the-future"}\n' * 5000 + encode(line("b")))
    reader = JournalReader(journal)
    assert texts(reader.read()) == ["b"]


def test_a_torn_tail_longer_than_a_chunk_is_cut(journal: Path) -> None:
    write(journal, Phase(rank=0, phase="training"))
    size = os.path.getsize(journal)
    with journal.open("ab") as file:
        file.write(b"x" * (3 * READ_BYTES))
    JournalWriter(journal).close()
    assert os.path.getsize(journal) == size
    journal.write_bytes(b"x" * (3 * READ_BYTES))
    JournalWriter(journal).close()
    assert os.path.getsize(journal) == 0


def test_a_reader_may_begin_where_the_journal_ends_now(journal: Path) -> None:
    assert journal_end(journal) == 0
    write(journal, line("one"), line("two"))
    whole = journal.stat().st_size
    with journal.open("ab") as file:
        file.write(b'{"type":"log","te')
    end = journal_end(journal)
    assert end == whole
    # The next writer cuts off what the last one left half-written.
    write(journal, line("three"))
    assert texts(JournalReader(journal, end).read()) == ["three"]


def test_the_rest_of_a_journal_ends_where_it_ended_when_asked_for(journal: Path) -> None:
    """Somebody who writes faster than a slow disk is read is not followed for ever."""
    write(journal, line("first"))
    rest = JournalReader(journal, chunk_bytes=64).rest()
    found = []
    for event in rest:
        found.append(event)
        write(journal, line("more"))
        assert len(found) < 10
    assert texts(found)[0] == "first"


LIMITED = textwrap.dedent(
    """
    import resource, sys
    from pathlib import Path
    from tuiapp.trainers.contract import journal
    from tuiapp.trainers.contract.events import LogLine

    def line(number):
        return LogLine(rank=0, stream="stdout", text=f"line {number} " + "x" * 100)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    journal.MAX_PENDING_BYTES = int(sys.argv[2])
    writer = journal.JournalWriter(Path(sys.argv[1]))
    blocked = []
    for number in range(60):
        # Full, with some room after 20 lines, and after 40 as much as is wanted.
        limit([2000, 5000, resource.RLIM_INFINITY][number // 20])
        writer.append([line(number)], durable=number % 5 == 0)
        writer.sync_due()
        blocked.append(writer.blocked is not None)
    assert not blocked[0] and blocked[19] and blocked[39] and not blocked[40] and not blocked[-1], blocked
    writer.close()
    print(writer.dropped)
    """
)


def run_limited(path: Path, pending_bytes: int) -> int:
    command = [sys.executable, "-c", LIMITED, str(path), str(pending_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def read(path: Path) -> tuple[list[int], list[int]]:
    """The numbers that the writer gave, and those in the lines."""
    events, reader = [], JournalReader(path)
    while more := reader.read():
        events += more
    lines = [event for event in events if isinstance(event, LogLine)]
    return [event.seq for event in lines], [int(event.text.split()[1]) for event in lines]


def test_nothing_is_lost_while_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert run_limited(path, 1 << 20) == 0
    assert read(path) == (list(range(1, 61)), list(range(60)))


def test_what_waits_is_bounded_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    dropped = run_limited(path, 1000)
    seqs, numbers = read(path)
    assert dropped > 0
    assert len(numbers) == 60 - dropped
    assert numbers == sorted(set(numbers))
    assert seqs == list(range(1, 61 - dropped))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_always_full(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    # The same descriptor, now leading to a disk that is full.
    descriptor = next(
        int(name) for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == str(path)
    )
    kept, full = os.dup(descriptor), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    writer.append([LogLine(rank=0, stream="stdout", text="one")], durable=True)
    assert writer.blocked is not None
    assert writer.blocked.strerror == "No space left on device"
    assert path.read_bytes() == b""
    os.dup2(kept, descriptor)
    writer.append([])
    assert writer.blocked is None
    assert path.read_bytes().count(b"one") == 1
    writer.close()
    os.close(kept)
    os.close(full)
