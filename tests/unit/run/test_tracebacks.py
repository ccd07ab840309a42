"""The exception that ended a process, from what it wrote."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.logging import RichHandler
from rich.traceback import Traceback

from tuiapp.trainers.run.rank_end import (
    CLEANUP_LINES,
    ELASTIC_ERROR_FILE,
    crashed_at_exit,
    find_terminate,
    find_traceback,
    rank_error,
    read_elastic_error,
    read_failure,
)

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
