"""Messages between processes, however the pipe cuts them."""

from __future__ import annotations

import os
import random

import pytest

from tests.kit.specimens import specimens
from tuiapp.trainers.run import wire


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
