"""How a script failed, from what it wrote; and the environment that it gets."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tuiapp.trainers.run.place import LOOPBACK
from tuiapp.trainers.run.script_process import (
    ELASTIC_ERROR_FILE,
    ScriptStart,
    find_traceback,
    read_elastic_error,
    reserve_port,
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


@pytest.mark.parametrize("text", ["", "usage: train.py", "Traceback (most recent call last):", "Traceback\n  x\n"])
def test_no_exception(text: str) -> None:
    assert find_traceback(text) is None


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


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"message": "text"}', b'{"message": {"message": 1}}', b"\xff"])
def test_another_error_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "error").write_bytes(data)
    assert read_elastic_error(tmp_path / "error") is None


def test_a_single_process_gets_no_rank(tmp_path: Path) -> None:
    start = ScriptStart(["python"], "/", None, {"A": "1"}, "run")
    assert start.environment(0, 0, tmp_path, {"B": "2"}) == {"A": "1", "B": "2"}


def test_a_reserved_port_is_for_the_script_alone() -> None:
    with reserve_port(LOOPBACK) as holder:
        port = holder.getsockname()[1]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("0.0.0.0", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port)):
                pass
