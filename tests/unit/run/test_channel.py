"""Messages in order, each once, over connections that break at any moment and pipes that cut them."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.specimens import specimens
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.channel import PING_S, SILENT_S, Channel, Pong


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Ends:
    """Two channels, and the pair of sockets between them."""

    def __init__(self) -> None:
        decoder = msgspec.json.Decoder(Text)
        self.channels = [Channel(decoder, lambda fd: None) for _ in range(2)]
        self.came: list[list[str]] = [[], []]
        self.sent: list[list[str]] = [[], []]
        self.connect()

    def connect(self) -> None:
        ours, theirs = self.channels
        for channel, connection in zip(self.channels, socket.socketpair(), strict=True):
            channel.attach(connection, (theirs if channel is ours else ours).received)

    def send(self, end: int, size: int) -> None:
        text = f"{len(self.sent[end])} {'x' * size}"
        self.sent[end].append(text)
        self.channels[end].send(Text(text))
        self.channels[end].flush()

    def read(self, end: int, *, confirms: bool = True) -> None:
        channel = self.channels[end]
        self.came[end] += [message.text for message in channel.read()]
        if confirms:
            channel.confirmed = channel.received
        channel.flush()


SIDES = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("send"), SIDES, st.sampled_from([0, 5, 3000, 400_000])),
    st.tuples(st.just("read"), SIDES, st.booleans()),
    st.tuples(st.just("cut"), SIDES),
    st.tuples(st.just("damage"), SIDES, st.binary(min_size=1, max_size=20)),
    st.tuples(st.just("connect")),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_to_the_connection(steps: list[tuple[Any, ...]]) -> None:
    ends = Ends()
    try:
        for what, *how in steps:
            match what, *how:
                case "send", end, size:
                    ends.send(end, size)
                case "read", end, confirms:
                    ends.read(end, confirms=confirms)
                case "cut", end:
                    ends.channels[end].detach()
                case "damage", end, data if ends.channels[end].connected:
                    with suppress(OSError):
                        os.write(ends.channels[end].fileno(), b"\n" + data + b"\n")
                case "connect", *_:
                    ends.connect()
        # Over a connection that lasts all that was sent arrives, and nobody keeps it.
        ends.connect()
        for _ in range(100):
            for end in range(2):
                ends.read(end)
        for end in (0, 1, 0, 1):
            ends.channels[end].advance(monotonic() + PING_S)
            ends.read(1 - end)
        assert ends.came == [ends.sent[1], ends.sent[0]]
        assert [channel.kept_bytes for channel in ends.channels] == [0, 0]
    finally:
        for channel in ends.channels:
            channel.detach()


def test_a_channel_is_connected_until_either_side_ends_or_is_silent() -> None:
    decoder = msgspec.json.Decoder(Text)
    forgotten: list[int] = []
    channel = Channel(decoder, forgotten.append)
    assert (channel.connected, channel.fileno()) == (False, -1)

    def attach() -> socket.socket:
        ours, other = socket.socketpair()
        fd = ours.fileno()
        channel.attach(ours, 0)
        assert (channel.connected, channel.fileno()) == (True, fd)
        return other

    def assert_ended() -> None:
        assert (channel.connected, channel.fileno(), len(forgotten)) == (False, -1, ends)
        assert channel.read() == []

    ends = 1
    with attach():
        channel.detach()
        assert_ended()
        channel.detach()
        assert_ended()
    ends = 2
    attach().close()
    assert channel.read() == []
    assert_ended()
    ends = 3
    with attach():
        channel.advance(channel.last_seen + SILENT_S)
        assert channel.connected
        channel.advance(channel.last_seen + SILENT_S + 0.1)
        assert_ended()
    ends = 4
    attach().close()
    channel.advance(channel.last_seen + PING_S)
    assert_ended()


def test_whoever_only_reads_confirms_each_second_or_after_200_messages() -> None:
    ends = Ends()
    now = ends.channels[1].last_seen
    ends.read(0)
    ends.channels[1].advance(now + PING_S)
    ends.read(0)

    def sent_after(count: int, at: float) -> bool:
        """Whether anything is sent for so many messages in one go."""
        for _ in range(count):
            ends.send(0, 0)
        ends.read(1)
        ends.channels[1].advance(at)
        kept = ends.channels[0].kept_bytes
        ends.read(0)
        return ends.channels[0].kept_bytes < kept

    try:
        assert not sent_after(200, now + 1.9 * PING_S)
        assert sent_after(1, now + 1.9 * PING_S)
        assert not sent_after(200, now + 1.9 * PING_S)
        assert sent_after(0, now + 2 * PING_S)
        assert ends.channels[0].kept_bytes == 0
    finally:
        for channel in ends.channels:
            channel.detach()


def test_how_far_the_other_clock_is_ahead_is_known_from_the_quickest_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr("tuiapp.trainers.run.channel.monotonic", lambda: now)
    channel = Channel(msgspec.json.Decoder(Text), lambda fd: None)
    connection, other = socket.socketpair()
    with other:
        channel.attach(connection, 0)
        for late, ahead in ((4.0, 102.0), (0.2, 100.1), (3.0, 100.1)):
            channel.advance(now := now + PING_S)
            (_, _, ping) = msgspec.json.decode(other.recv(1000))
            now += late
            other.send(msgspec.json.encode([0, 0, Pong(ping["sent"], now + 100)]) + b"\n")
            assert channel.read() == []
            assert channel.ahead_s == pytest.approx(ahead)
        channel.detach()


@pytest.mark.parametrize("seed", range(5))
def test_messages_come_whole_from_any_pieces(seed: int) -> None:
    sent = [*specimens(), wire.Vote(1, 2, 1)]
    data = b"".join(map(wire.encode, sent))
    dice = random.Random(seed)
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    reader, came = wire.rank_messages(read_fd), []
    assert reader.read() == []
    while data:
        size = dice.choice([1, 7, 100, 5000])
        os.write(write_fd, data[:size])
        data = data[size:]
        came += reader.read()
    assert not reader.ended
    os.close(write_fd)
    came += reader.read()
    assert reader.ended
    assert came == sent
    assert reader.dropped == 0
    os.close(read_fd)


def test_what_a_dead_rank_left_is_read_though_a_child_holds_the_pipe_open() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    reader = wire.rank_messages(read_fd)
    os.write(write_fd, wire.encode(wire.Vote(0, 1, 1)) * 3 + b'{"type":"vote","ra')
    assert reader.read_all() == [wire.Vote(0, 1, 1)] * 3
    assert not reader.ended
    os.close(write_fd)
    assert reader.read_all() == []
    assert reader.ended
    os.close(read_fd)


def test_what_is_no_message_is_dropped_and_counted() -> None:
    read_fd, write_fd = os.pipe()
    reader = wire.rank_messages(read_fd)
    os.write(write_fd, b'\n{"type":"of-the-future"}\n\xff\n' + wire.encode(wire.Vote(0, 1, 1)))
    assert reader.read() == [wire.Vote(0, 1, 1)]
    assert reader.dropped == 3
    os.close(write_fd)
    os.close(read_fd)
