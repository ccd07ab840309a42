"""Commands to a run: in order, each once, and nothing else that lies there is one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tuiapp.trainers.contract import sidecars


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    directory = tmp_path / "commands"
    directory.mkdir()
    return directory


def test_taken_once_in_the_order_in_which_they_were_sent(commands: Path) -> None:
    assert sidecars.take_commands(commands) == []
    for command in ("stop", "stop-now", "stop"):
        sidecars.send_command(commands, command)
    assert sidecars.take_commands(commands) == ["stop", "stop-now", "stop"]
    assert sidecars.take_commands(commands) == []
    assert list(commands.iterdir()) == []


def test_what_is_no_command_is_removed(commands: Path) -> None:
    for name in ("1-aaaa.checkpoint-at-noon", "notes", "stop", "2-bbbb.stop.swp", "3-cccc.STOP"):
        (commands / name).write_text("x" * 1000)
    (commands / "4-dddd.stop-now").touch()
    assert sidecars.take_commands(commands) == ["stop-now"]
    assert list(commands.iterdir()) == []


def test_a_profile_has_a_number_of_steps(commands: Path) -> None:
    sidecars.send_command(commands, "profile", 10)
    for name in ("2-b.profile", "3-c.profile=0", "4-d.profile=", "5-e.profile=99999", "6-f.stop=3", "7-g.profile=²"):
        (commands / name).touch()
    assert sidecars.take_commands(commands) == ["profile=10"]
    assert list(commands.iterdir()) == []


def test_a_command_under_way_is_left_alone(commands: Path) -> None:
    (commands / ".1-aaaa.stop.x7").touch()
    assert sidecars.take_commands(commands) == []
    assert len(list(commands.iterdir())) == 1


def test_many_senders(commands: Path) -> None:

    def send() -> None:
        for _ in range(10):
            sidecars.send_command(commands, "stop")

    senders = [threading.Thread(target=send) for _ in range(8)]
    for sender in senders:
        sender.start()
    taken: list[str] = []
    while any(sender.is_alive() for sender in senders):
        taken += sidecars.take_commands(commands)
    for sender in senders:
        sender.join()
    taken += sidecars.take_commands(commands)
    assert taken == ["stop"] * 80
