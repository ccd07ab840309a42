"""What a rank prints, and what its run is said to have failed of."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import msgspec
import psutil
import pytest

from tests.kit.harness import MLP, Watched, launched
from tests.kit.hostile import harm_in
from tests.kit.terminal import Terminal
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.contract import sidecars
from tuiapp.trainers.contract.events import LogLine, RankFailed

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


GROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A group of the first version of cgroups with 256 MiB."""
    group = GROUPS / f"tuiapp-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
    except OSError:
        group.rmdir() if group.exists() else None
        pytest.skip("no control group can be made here")
    yield group
    group.rmdir()


def test_a_rank_that_the_kernel_kills_for_want_of_memory(
    runs_dir: Path, fake: Callable[..., None], small_group: Path
) -> None:
    # Late enough for the supervisor to have looked at the new group's count twice.
    fake("hog:1:300", step=0.05)
    with launched(MLP, runs_dir) as run:
        # The whole run, so that the count is that of its supervisor's group too, and not before its ranks are there:
        # one that begins meanwhile would stay outside.
        run.at_step(1)
        for process in run.processes():
            (small_group / "cgroup.procs").write_text(str(process.pid))
        limited = (small_group / "cgroup.procs").read_text().split()
        assert {str(run.pid(0)), str(run.pid(1))} <= set(limited)
        end = run.end()
        failed = next(one for one in run.of(RankFailed) if one.rank == 1)
        print(f"\n{end.reason}")
        assert failed.signal == "SIGKILL"
        assert end.failed_rank == 1
        assert "by the kernel's out-of-memory killer" in end.reason
        assert "not by" not in end.reason
        run.wait_gone()


RAISES = "raise ValueError('bad shard 3')"


def reason(directory: Path, runs_dir: Path, text: str, **keys: object) -> str:
    """Why the run of a short script failed."""
    path = directory / "train.py"
    path.write_text(dedent(text))
    known: dict[str, object] = {"platform": "cpu", "devices": 1, "working_directory": str(directory)}
    config = RunConfig(backend="script", script=str(path), **{**known, **keys})  # type: ignore[arg-type]
    with launched(config, runs_dir) as run:
        end = run.end()
        assert end.status == "failed"
        return end.reason


def test_a_signal_after_an_exception(tmp_path: Path, runs_dir: Path) -> None:
    end = "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGABRT))\n"
    said = reason(tmp_path, runs_dir, end + RAISES)
    assert said == "rank 0 failed: ValueError: bad shard 3; SIGABRT ended it afterwards"


CAUGHT = """
    import os, signal, time, traceback
    try:
        1 / 0
    except ZeroDivisionError:
        traceback.print_exc()
    for step in range(20):
        print("step", step, end="\\r", flush=True)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_signal_long_after_an_exception_that_was_caught(tmp_path: Path, runs_dir: Path) -> None:
    assert reason(tmp_path, runs_dir, CAUGHT).startswith("rank 0 was killed by SIGKILL — ")


GLOO = """
    import os, sys, time, traceback, torch, torch.distributed as dist
    from datetime import timedelta
    dist.init_process_group("gloo", timeout=timedelta(seconds=4))
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    {}
"""


def test_a_rank_that_cleans_up_while_another_times_out(tmp_path: Path, runs_dir: Path) -> None:
    clean = "try: {}['text']\n    except KeyError: traceback.print_exc(); print('cleaning up'); time.sleep(60)"
    said = reason(tmp_path, runs_dir, GLOO.replace("{}", clean), devices=2)
    assert said == "rank 1 failed: KeyError: 'text'; SIGTERM ended it afterwards"


def test_a_rank_that_ends_while_another_waits_for_it(tmp_path: Path, runs_dir: Path) -> None:
    said = reason(tmp_path, runs_dir, GLOO.format("os._exit(0)"), devices=2)
    assert said.startswith("rank 1 exited with code 0, while rank 0 waited for it in a collective: RuntimeError: ")


def test_a_run_has_no_keyboard(tmp_path: Path, runs_dir: Path) -> None:
    assert "a run has no keyboard" in reason(tmp_path, runs_dir, "breakpoint()")
