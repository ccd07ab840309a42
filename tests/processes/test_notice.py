"""A run's end is told: to a command and to a webhook, once, whatever ended it, and nothing is held up by it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from tests.kit.command_line import as_process
from tests.kit.harness import MLP, launched, watching
from tests.kit.waiting import wait_until
from tuiapp.trainers.config.settings import settings_path
from tuiapp.trainers.contract.rundir import RunDir

pytestmark = pytest.mark.usefixtures("no_framework")

SHORT = msgspec.structs.replace(MLP, devices=1, max_steps=5)


class Hook:
    """A server that notes what is posted to it.

    Args:
        answers: The status of each answer; the last one stays.
    """

    def __init__(self, *answers: int) -> None:
        self.bodies: list[dict[str, object]] = []
        left = list(answers) or [200]
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.bodies.append(json.loads(body))
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/s3cret-path"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.close()


def settle(**settings: object) -> None:
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))


def noting(path: Path) -> list[str]:
    """A command that appends what it is told to a file."""
    script = (
        "import json, os, sys; file = open(sys.argv[1], 'a');"
        "file.write(json.dumps({k: v for k, v in os.environ.items() if k.startswith('TUIAPP_RUN_')}) + '\\n')"
    )
    return [sys.executable, "-c", script, str(path)]


def log_of(run: object) -> str:
    return str(run.supervisor_log.read_text())  # type: ignore[attr-defined]


def test_a_command_and_a_webhook_are_told_once(runs_dir: Path, tmp_path: Path, hook: Hook) -> None:
    told = tmp_path / "told"
    settle(command=noting(told), webhook=hook.url)
    with launched(SHORT, runs_dir) as run:
        order = run.run.notice
        assert order.stat().st_mode & 0o777 == 0o600
        assert run.end().status == "completed"
        run.wait_gone()
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
        (line,) = told.read_text().splitlines()
        facts = json.loads(line)
        assert facts["TUIAPP_RUN_ID"] == run.run.run_id
        assert facts["TUIAPP_RUN_STATUS"] == "completed"
        assert facts["TUIAPP_RUN_STEPS"] == "5"
        assert facts["TUIAPP_RUN_DIRECTORY"] == str(run.run.path)
        (body,) = hook.bodies
        assert body["status"] == "completed"
        assert body["run"] == run.run.run_id
        assert isinstance(body["loss"], float)
        assert "completed" in str(body["text"])
        assert not order.exists()
        assert "notice" not in log_of(run.run)


@pytest.mark.nightly
def test_the_end_of_a_run_whose_supervisor_was_killed_is_told(runs_dir: Path, hook: Hook) -> None:
    settle(webhook=hook.url)
    with launched(MLP, runs_dir) as run:
        run.at_step(1)
        killed = time.monotonic()
        os.kill(run.started.pid, signal.SIGKILL)
        wait_until(lambda: hook.bodies)
        print(f"told {time.monotonic() - killed:.2f} s after the kill")
        run.wait_gone()
        assert [body["status"] for body in hook.bodies] == ["lost"]


@pytest.mark.nightly
def test_what_goes_wrong_is_logged_without_the_address(runs_dir: Path) -> None:
    hook = Hook(500, 302)
    try:
        settle(command=["/nowhere/to/be/found"], webhook=hook.url)
        with launched(SHORT, runs_dir) as run:
            assert run.end().status == "completed"
            run.wait_gone()
            wait_until(lambda: "cannot be run" in log_of(run.run))
            said = log_of(run.run)
            # A server's error is tried again; another address is not gone to.
            assert len(hook.bodies) == 2
            assert "the webhook at http://127.0.0.1 rejected the notice: HTTP 302" in said
            assert "s3cret" not in said
    finally:
        hook.close()


@pytest.mark.nightly
@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_a_command_that_others_could_have_planted_is_not_run(
    runs_dir: Path, tmp_path: Path, hook: Hook, how: tuple[str, ...]
) -> None:
    settle(command=["touch", str(tmp_path / "told")], webhook=hook.url)
    settings_path().chmod(0o666)
    settings = ["--set=platform=cpu", "--set=devices=1", "--set=model=mlp", "--set=max_steps=2"]
    done = as_process("run", "quickstart", *settings, "--runs-dir", runs_dir, *how)
    assert done.code == 0
    for key in ("command", "webhook"):
        assert f"tuiapp: {settings_path()}: {key}: is ignored: others may write" in done.err
    (path,) = runs_dir.iterdir()
    with watching(RunDir(path)) as run:
        assert not run.run.notice.exists()
        assert run.end().status == "completed"
        run.wait_gone()
    assert not (tmp_path / "told").exists()
    assert hook.bodies == []
