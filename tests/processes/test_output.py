"""What a rank prints: of any length, in any encoding, with whatever a terminal would obey."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, Watched, launched
from tests.kit.hostile import harm_in
from tests.kit.terminal import Terminal
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import LogLine

pytestmark = pytest.mark.nightly

LONG_BYTES = 10 << 20


def lines_of(run: Watched, rank: int) -> list[str]:
    return [line.text for line in run.of(LogLine) if line.rank == rank]


def test_ten_megabytes_bad_bytes_bars_sequences_and_markup(runs_dir: Path, fault: Callable[[str], None]) -> None:
    fault("babble:1:5")
    # Lines of evaluations would push the last of these from the screen.
    config = msgspec.structs.replace(MLP, checkpoint_every=0, eval_every=0)
    with launched(config, runs_dir) as run:
        run.at_step(1)
        supervisor = psutil.Process(run.started.pid)
        environment = {"TUIAPP_RUNS_DIR": str(runs_dir), "LANG": "C.UTF-8"}
        command = [sys.executable, "-P", "-m", "tuiapp", "attach", run.run.run_id]
        with Terminal(command, environment=environment) as terminal:
            run.wait(LogLine, lambda line: line.text == "the babbling is over")
            terminal.wait("the babbling is over", 60)
            most = int(Path(f"/proc/{supervisor.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
            view = int(Path(f"/proc/{terminal.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
            terminal.press("5")
            terminal.wait_for_silence()
            terminal.press("ctrl+q")
            terminal.wait_for_silence()
            terminal.press("enter")
            assert terminal.wait_exit() == 0
            text = terminal.raw.decode()
            assert "HACKED" not in text
            assert "\x1b]52" not in text
            assert not any(harm_in(line) for line in terminal.screen.display)
        said = lines_of(run, 1)
        assert max(map(len, said)) <= 8 * 1024
        assert any(text.startswith("long xxx") for text in said)
        assert any("�" in text for text in said)
        assert "bar 100 %" in said
        assert not any(text.startswith("bar 50") for text in said)
        assert any("[red]markup[/]" in text for text in said)
        # As it was printed, for who reads the file.
        assert (run.run.rank(1) / "stdout.log").stat().st_size > LONG_BYTES
        sidecars.send_command(run.run.commands, "stop-now")
        assert run.end().status == "stopped"
        run.wait_gone()
    print(f"\nsupervisor at most {most:.0f} MiB, dashboard {view:.0f} MiB")
    assert most < 80
    assert view < 200
    assert os.path.getsize(run.run.journal) < LONG_BYTES
