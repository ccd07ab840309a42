"""What a script's run is said to have failed of, when something else than the cause is seen last or first."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.kit.harness import launched
from tuiapp.trainers.config.run_config import RunConfig

pytestmark = pytest.mark.nightly

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


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL"])
def test_a_signal_after_an_exception(tmp_path: Path, runs_dir: Path, name: str) -> None:
    end = f"import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.{name}))\n"
    said = reason(tmp_path, runs_dir, end + RAISES)
    assert said == f"rank 0 failed: ValueError: bad shard 3; {name} ended it afterwards"


CAUGHT = """
    import os, signal, time, traceback
    try:
        1 / 0
    except ZeroDivisionError:
        traceback.print_exc()
    for step in range(20):
        print("step", step, end="{}", flush=True)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.{})
"""


@pytest.mark.parametrize(("name", "end"), [("SIGABRT", r"\n"), ("SIGKILL", r"\n"), ("SIGKILL", r"\r")])
def test_a_signal_long_after_an_exception_that_was_caught(tmp_path: Path, runs_dir: Path, name: str, end: str) -> None:
    assert reason(tmp_path, runs_dir, CAUGHT.format(end, name)).startswith(f"rank 0 was killed by {name} — ")


def test_a_watchdog_in_native_code(tmp_path: Path, runs_dir: Path) -> None:
    said = reason(
        tmp_path,
        runs_dir,
        """
        import os, sys
        print("terminate called after throwing an instance of 'std::runtime_error'", file=sys.stderr)
        print("  what():  no link", file=sys.stderr, flush=True)
        os.abort()
        """,
    )
    assert said == "rank 0 failed: std::runtime_error: no link; SIGABRT ended it afterwards"


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


# Without the group's end gloo may abort at the interpreter's.
@pytest.mark.parametrize("end", ["dist.destroy_process_group(); sys.exit(0)", "os._exit(0)"])
def test_a_rank_that_ends_while_another_waits_for_it(tmp_path: Path, runs_dir: Path, end: str) -> None:
    said = reason(tmp_path, runs_dir, GLOO.format(end), devices=2)
    assert said.startswith("rank 1 exited with code 0, while rank 0 waited for it in a collective: RuntimeError: ")


@pytest.mark.parametrize(
    "asks",
    ["input('name: ')", "breakpoint()", "import getpass; getpass.getpass()", "import pdb; pdb.set_trace(); print()"],
)
def test_a_run_has_no_keyboard(tmp_path: Path, runs_dir: Path, asks: str) -> None:
    assert "a run has no keyboard" in reason(tmp_path, runs_dir, asks)


@pytest.mark.parametrize("error", ["MemoryError()", "RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')"])
def test_a_script_out_of_memory_is_told_of_no_key(tmp_path: Path, runs_dir: Path, error: str) -> None:
    said = reason(tmp_path, runs_dir, f"import tuiapp\ntuiapp.init().log({{'loss': 1.0}})\nraise {error}")
    assert said.startswith("rank 0 failed at step 1: ")
    assert "_batch" not in said


def test_an_exception_that_goes_to_stdout(tmp_path: Path, runs_dir: Path) -> None:
    text = f"""
        import sys, warnings
        from rich.console import Console
        warnings.warn("a warning, on stderr")
        try:
            {RAISES}
        except ValueError:
            Console().print_exception()
            sys.exit(1)
        """
    assert reason(tmp_path, runs_dir, text) == "rank 0 failed: ValueError: bad shard 3"
