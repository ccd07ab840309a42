"""Why ranks ended, in words, which failure came first, and the exception that ended a process, from what it wrote."""

from __future__ import annotations

import io
import logging
import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.logging import RichHandler
from rich.traceback import Traceback

from tuiapp.trainers.config.files import printable
from tuiapp.trainers.contract.events import RankFailed
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_end import (
    CLEANUP_LINES,
    ELASTIC_ERROR_FILE,
    KEEP_S,
    OomWatch,
    crashed_at_exit,
    describe_exit,
    find_terminate,
    find_traceback,
    first_cause,
    is_consequence,
    left_early,
    rank_error,
    read_elastic_error,
    read_failure,
)
from tuiapp.trainers.state.messages import describe_failure


def failed(rank: int, mono: float, *, consequence: bool = False) -> tuple[RankFailed, bool]:
    return RankFailed(rank=rank, mono=mono), consequence


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ([failed(0, 5.0)], 0),
        ([failed(0, 5.0), failed(1, 4.0)], 1),
        # A collective's error may be raised, or seen, before what it follows from.
        ([failed(0, 4.0, consequence=True), failed(1, 5.0)], 1),
        ([failed(0, 4.0, consequence=True), failed(1, 5.0), failed(2, 4.5), failed(3, 3.0, consequence=True)], 2),
        ([failed(0, 4.0, consequence=True), failed(1, 3.0, consequence=True)], 1),
    ],
)
def test_the_first_cause(failures: list[tuple[RankFailed, bool]], rank: int) -> None:
    for seed in range(5):
        random.Random(seed).shuffle(failures)
        assert first_cause(failures).rank == rank


TIMEOUT = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation"


@pytest.mark.parametrize(
    ("failures", "left", "rank"),
    [
        ([(RankFailed(rank=0, mono=9.0, error=TIMEOUT), True)], {1: 8.0, 2: 5.0}, 2),
        # It takes longer to end than the others to notice.
        ([(RankFailed(rank=0, mono=9.0, error=TIMEOUT), True)], {1: 9.5}, 1),
        ([(RankFailed(rank=0, error="RuntimeError: x", traceback="distributed_c10d.py"), True)], {1: 8.0}, 1),
        ([(RankFailed(rank=0, error=TIMEOUT), True)], {}, None),
        # Another rank is the cause.
        ([(RankFailed(rank=0, error=TIMEOUT), True), failed(2, 9.0)], {1: 8.0}, None),
        # A server elsewhere is gone.
        ([(RankFailed(rank=0, error="ConnectionError: Connection reset by peer"), True)], {1: 8.0}, None),
        ([], {1: 8.0}, None),
    ],
)
def test_a_rank_that_ended_while_others_waited_for_it(
    failures: list[tuple[RankFailed, bool]], left: dict[int, float], rank: int | None
) -> None:
    early = left_early(failures, left)
    assert (early.rank if early else None) == rank
    if early:
        why = "while rank 0 waited for it in a collective: RuntimeError: "
        assert describe_failure(early).startswith(f"rank {rank} exited with code 0, {why}")


@pytest.mark.parametrize(
    "error",
    [
        TIMEOUT,
        "c10::DistBackendError: [Rank 0] Watchdog caught collective operation timeout",
        "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 6000 ms",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: end",
        "XlaRuntimeError: UNAVAILABLE: no heartbeats reach the coordination service",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94",
        "torch.distributed.DistStoreError: wait timeout after 1000ms",
        "RuntimeError: Broken pipe",
        "RuntimeError: Connection reset by peer",
    ],
)
def test_what_collectives_raise_when_a_rank_is_gone(error: str) -> None:
    assert is_consequence(error)


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: global batch of 7",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (24x784 and 785x256)",
        "KeyError: 'connection'",
    ],
)
def test_what_a_rank_raises_by_itself(error: str) -> None:
    assert not is_consequence(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", (3, "")),
        ("pass", (0, "")),
        ("import os; os.kill(os.getpid(), 9)", (None, "SIGKILL")),
        ("import os; os.abort()", (None, "SIGABRT")),
        ("import os; os.kill(os.getpid(), 40)", (None, "signal 40")),
    ],
)
def test_how_a_real_process_ended(code: str, expected: tuple[int | None, str]) -> None:
    assert describe_exit(subprocess.run([sys.executable, "-S", "-c", code], check=False).returncode) == expected


@pytest.mark.parametrize(
    "said", ["x" * 150_000, "é\x00" * 20_000, "no such file: /data/\udcff"], ids=["long", "long in JSON", "no text"]
)
def test_whatever_a_rank_raises_is_on_record(said: str) -> None:
    try:
        raise ValueError(said)
    except ValueError as error:
        sent = wire.encode(wire.Failed(0, 1, rank_error(error, traceback.format_exc())))
    found = msgspec.json.decode(sent, type=wire.Failed).error
    assert found is not None
    assert found.error.startswith(f"ValueError: {said[:10]}")
    # Where it was raised stands at the traceback's beginning, what was raised at its end.
    assert "in test_whatever_a_rank_raises_is_on_record" in found.traceback
    assert found.traceback.rstrip("\n").endswith(printable(said[-2:]))


def counter(path: Path, count: int, name: str = "oom_kill") -> None:
    path.write_text(f"oom 7\n{name} {count}\nother 1\n")


def test_the_killer_is_named_when_it_struck_lately(tmp_path: Path) -> None:
    path = tmp_path / "memory.events"
    counter(path, 4)
    watch = OomWatch(100.0, [path])
    assert watch.oom_killed() is False
    # Long ago is no news.
    counter(path, 5)
    for second in range(100, 100 + 4 * int(KEEP_S)):
        watch.poll(float(second))
    assert watch.oom_killed() is False
    counter(path, 6)
    watch.poll(100 + 5 * KEEP_S)
    assert watch.oom_killed() is True


@pytest.mark.parametrize("content", [None, "", "oom 1\n", "oom_kill x\n", "\xff"])
def test_a_kernel_that_tells_nothing(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "memory.events"
    if content is not None:
        path.write_text(content)
    assert OomWatch(0.0, [path]).oom_killed() is None
    assert OomWatch(0.0, []).oom_killed() is None


FAILING = {
    "plain": ("raise ValueError('no')", "ValueError: no", 3),
    "own": ("class Mine(Exception): pass\nraise Mine('a: b')", "Mine: a: b", 3),
    "no message": ("raise RuntimeError", "RuntimeError", 3),
    "several lines": ("raise ValueError('one\\ntwo')", "ValueError: one", 3),
    "then output": ("import atexit; atexit.register(print, 'end', file=__import__('sys').stderr)\n1/0", "ZeroDiv", 3),
    "chained": ("try:\n  1/0\nexcept Exception as e:\n  raise ValueError('no') from e", "ValueError: no", 9),
    "while handling": ("try:\n  1/0\nexcept Exception:\n  raise ValueError('no')", "ValueError: no", 9),
    "only the last": (
        "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()\n{}['a']",
        "KeyError: 'a'",
        3,
    ),
    "then ignored": ("class A:\n  def __del__(self): raise OSError('in del')\na = A()\n1/0", "ZeroDivisionError", 3),
    "syntax": ("x = (", "SyntaxError: '(' was never closed", 2),
    "indentation": ("if 1:\nx = 1", "IndentationError: expected an indented block", 2),
    "deep": ("def f(n): return f(n + 1)\nf(0)", "RecursionError: maximum recursion depth", 3),
}


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
@pytest.mark.parametrize("name", FAILING)
def test_the_exception_that_ended_it(tmp_path: Path, name: str, prefix: str) -> None:
    code, error, least = FAILING[name]
    script = tmp_path / "train.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    text = "".join(f"{prefix}{line}\n" for line in f"a warning\n{done.stderr}".splitlines())
    said = find_traceback(text)
    assert said is not None
    assert said.error.startswith(error)
    lines = said.traceback.splitlines()
    assert len(lines) >= least
    assert lines[0].startswith(("Traceback (most", "  File "))
    assert lines[-1].startswith(error)
    assert "rank1" not in said.traceback


LONG = "a message of more than eighty characters, which rich breaks between two of its words, wherever that may be"


def raised(exception: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise exception from cause
    except BaseException as error:
        return error


def group(name: str, *members: BaseException) -> BaseException:
    return raised(BaseExceptionGroup(name, members))


def noted() -> BaseException:
    member = ValueError("a")
    member.add_note("of a member")
    error = ExceptionGroup("shards failed:", [member, OSError("b")])
    error.add_note("while reading")
    return raised(error)


EXCEPTIONS = {
    "long": (raised(ValueError(LONG)), f"ValueError: {LONG}"),
    "chained": (raised(ValueError("no"), raised(KeyError("a"))), "ValueError: no"),
    "no message": (raised(AssertionError()), "AssertionError"),
    "colon": (
        raised(RuntimeError('Error(s) in loading:\n\tMissing key(s): "fc.weight".\n\tUnexpected')),
        'RuntimeError: Error(s) in loading: Missing key(s): "fc.weight".',
    ),
    "empty first line": (raised(RuntimeError("\n\n  what happened")), "RuntimeError: what happened"),
    "two colons": (raised(ValueError("these:\nof them:\n  the third\nmore")), "ValueError: these: of them: the third"),
    "group": (
        group("2 failed", OSError("no space"), ValueError("bad header\nmore")),
        "ExceptionGroup: 2 failed (2 sub-exceptions): OSError: no space; ValueError: bad header",
    ),
    "nested": (
        group("outer", group("inner", KeyError("k"), OSError("o")), TypeError("t"), ValueError("v")),
        "ExceptionGroup: outer (3 sub-exceptions): KeyError: 'k'; OSError: o; TypeError: t; and 1 more",
    ),
    "group with notes": (noted(), "ExceptionGroup: shards failed: (2 sub-exceptions): ValueError: a; OSError: b"),
    "group that follows": (
        raised(group("g", ValueError("v")), raised(KeyError("k"))),
        "ExceptionGroup: g (1 sub-exception): ValueError: v",
    ),
    "group before": (raised(RuntimeError("last"), group("g", ValueError("v"))), "RuntimeError: last"),
}


def as_python(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def with_prefix(error: BaseException) -> str:
    return "".join(f"[rank1]: {line}\n" for line in as_python(error).splitlines())


def after_a_bar(error: BaseException) -> str:
    return " 50%|█████     | 5/10 [00:01<00:01,  4.9it/s]" + as_python(error).lstrip()


def as_rich(error: BaseException, encoding: str = "utf-8", *, colours: bool = False, show_locals: bool = False) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding, errors="replace")
    frames = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=show_locals)
    Console(file=file, width=80, force_terminal=colours).print(frames)
    file.seek(0)
    return file.read()


def as_rich_in_colours_with_variables(error: BaseException) -> str:
    return as_rich(error, colours=True, show_locals=True)


def as_rich_in_ascii(error: BaseException) -> str:
    return as_rich(error, "ascii")


def as_rich_logs(error: BaseException) -> str:
    file = io.StringIO()
    handler = RichHandler(rich_tracebacks=True, console=Console(file=file, width=200))
    handler.handle(
        logging.makeLogRecord({"msg": "it failed", "exc_info": (type(error), error, error.__traceback__), "lineno": 1})
    )
    return file.getvalue()


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize(
    "printed",
    [as_python, with_prefix, after_a_bar, as_rich, as_rich_in_colours_with_variables, as_rich_in_ascii, as_rich_logs],
)
def test_however_it_was_printed(printed: Callable[[BaseException], str], name: str) -> None:
    error, line = EXCEPTIONS[name]
    said = find_traceback(f"a warning:\n{printed(error)}\nwandb: Synced: 5 files\n")
    assert said is not None
    assert said.error == line
    assert "wandb" not in said.traceback
    assert 1 <= said.lines_after <= 6


LOGURU = """
2026-11-28 20:27:12.455 | ERROR    | __main__:<module>:13 - An error has been caught in function '<module>':
Traceback (most recent call last):

  File "train.py", line 5, in g
    def g(x): return {"a": 1}[x]
        │ │                   └ 'b'
        └ <function g at 0x7fb2364804a0>

KeyError: 'b'


The above exception was the direct cause of the following exception:


Traceback (most recent call last):

> File "train.py", line 13, in <module>
    main()
    └ <function main at 0x7fb2357db560>

  File "train.py", line 10, in main
    raise ValueError("no such column") from e
                                            └ KeyError('b')

ValueError: no such column
"""
LOGURU_GROUP = """
Traceback (most recent call last):

KeyError: 'b'


During handling of the above exception, another exception occurred:


  + Exception Group Traceback (most recent call last):
  |
  | > File "train.py", line 13, in <module>
  |     main()
  |     └ <function main at 0x7f2253adb560>
  |
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | OSError: one
    +---------------- 2 ----------------
    | ValueError: two
    +------------------------------------
"""
JOB = """
(Trainer pid=7) Traceback (most recent call last):
(Trainer pid=7)   File "train.py", line 5, in g
(Loader pid=8) a line of another process
(Trainer pid=7) ValueError: no
"""


@pytest.mark.parametrize(
    ("text", "error", "start"),
    [
        (LOGURU, "ValueError: no such column", "Traceback"),
        (LOGURU.replace("ValueError", "\x1b[31m\x1b[1mValueError\x1b[0m"), "ValueError: no such column", "Traceback"),
        (LOGURU_GROUP, "ExceptionGroup: two (2 sub-exceptions): OSError: one; ValueError: two", "Traceback"),
        (JOB, "ValueError: no", "(Trainer pid=7) Traceback"),
        ('Password: Traceback (most recent call last):\n  File "a.py", line 1\nEOFError\n', "EOFError", "Password: "),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1\nf.<locals>.Mine: no\n'
            "\nTraceback (most recent call last):\n  File",
            "f.<locals>.Mine: no",
            "Traceback",
        ),
    ],
)
def test_as_other_tools_print_it(text: str, error: str, start: str) -> None:
    said = find_traceback(text)
    assert said is not None
    assert said.error == error
    assert said.traceback.startswith(start)


def test_what_is_reported_of_a_group_names_its_members() -> None:
    error = EXCEPTIONS["group"][0]
    assert rank_error(error, as_python(error)).error == EXCEPTIONS["group"][1]


ABORTED = """
[rank0]:[E1128 ProcessGroupNCCL.cpp:633] [Rank 0] Watchdog caught collective operation timeout
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [Rank 0] Process group watchdog thread terminated with exception: timeout
Exception raised from checkTimeout at ProcessGroupNCCL.cpp:635 (most recent call first):
Fatal Python error: Aborted

Thread 0x00007f8c3e847b80 (most recent call first):
  File "train.py", line 13 in <module>
"""


def test_what_native_code_threw() -> None:
    said = find_terminate(ABORTED)
    assert said is not None
    error = "c10::DistBackendError: [Rank 0] Process group watchdog thread terminated with exception: timeout"
    assert said.error == error
    assert find_terminate("Fatal Python error: Aborted") is None


@pytest.mark.parametrize(
    ("stacks", "at_exit"),
    [
        ("Fatal Python error: Aborted\n\nCurrent thread 0x0 (most recent call first):\n  <no Python frame>\n", True),
        ('Fatal Python error: Segmentation fault\n\n  File "b.py", line 2 in <lambda>\n', True),
        (ABORTED, False),
        ("", None),
    ],
)
def test_whether_the_script_had_ended_when_a_signal_came(stacks: str, at_exit: bool | None) -> None:
    assert crashed_at_exit(as_python(EXCEPTIONS["chained"][0]) + stacks) is at_exit


@pytest.mark.parametrize(("more", "counts"), [(CLEANUP_LINES, True), (CLEANUP_LINES + 1, False)])
def test_an_exception_that_was_printed_to_stdout(tmp_path: Path, more: int, counts: bool) -> None:
    (tmp_path / "stderr.log").write_text("UserWarning: slow\n")
    (tmp_path / "stdout.log").write_text(as_python(EXCEPTIONS["chained"][0]) + "a line\n" * more)
    said = read_failure(tmp_path, 0, 0)
    assert (said is not None and said.error == "ValueError: no") is counts


def test_what_torch_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    path = tmp_path / ELASTIC_ERROR_FILE
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    def main() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        errors.record(main)()
    said = read_elastic_error(path)
    assert said is not None
    assert said.error == "ValueError: no"
    assert said.traceback.startswith("Traceback")
