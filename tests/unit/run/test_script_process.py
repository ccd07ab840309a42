"""What torch records of a failure; and the environment that a script gets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tuiapp.trainers.run.rank_environment import LOOPBACK, ScriptStart, bind_free
from tuiapp.trainers.run.tracebacks import ELASTIC_ERROR_FILE, read_elastic_error


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
    with bind_free(LOOPBACK) as holder:
        port = holder.getsockname()[1]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("0.0.0.0", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port)):
                pass
