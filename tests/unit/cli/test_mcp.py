"""The tools for assistants: thin over the verbs, reading only unless launching is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import TextContent

from tests.kit import interrupted
from tests.kit.recorded import record
from tuiapp.cli import main
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.contract.sidecars import find_waiting
from tuiapp.verbs.mcp import make_server

pytestmark = pytest.mark.nightly

FIRST, SECOND = "20261120T101500-torch-ddp-net-3fa1", "20261120T101400-torch-ddp-net-3fa2"
READING = ["compare", "list_devices", "list_presets", "list_queue", "list_runs", "list_studies", "metrics", "show_run"]
CHANGING = ["launch", "queue_run", "stop", "sweep"]


@pytest.fixture
def runs(tmp_path: Path) -> Sequence[RunDir]:
    return [record(tmp_path / "runs", name, interrupted.stopped()) for name in (FIRST, SECOND)]


async def call(client: Client, tool: str, **given: Any) -> tuple[bool, str]:
    """Whether it failed, and what it said."""
    result = await client.call_tool(tool, given)
    texts = [one.text for one in result.content if isinstance(one, TextContent)]
    return bool(result.is_error), "\n".join(texts)


async def test_a_launch_is_checked_as_on_the_command_line(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    async with Client(make_server(directory, main, may_launch=True)) as client:
        failed, text = await call(client, "launch", source="quickstart", settings={"learning_rate": "fast"})
        assert failed
        assert "learning_rate: 'fast' is not allowed" in text
        failed, text = await call(client, "queue_run", source="--help")
        assert failed
        assert "is no preset, file or script" in text
        failed, text = await call(client, "launch", source="quickstart", arguments="'")
        assert failed
        assert "arguments: " in text
    assert find_waiting(directory) == []


CALLS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "list_runs": ({"filter": "state:stopped", "limit": 1}, f'"run":"{FIRST}"'),
    "show_run": ({"run": FIRST}, '"status":"stopped"'),
    "metrics": ({"run": "latest", "names": ["loss"], "points": 3}, '"loss"'),
    "compare": ({"runs": [FIRST, SECOND]}, '"differing"'),
    "list_queue": ({}, "[]"),
    "list_presets": ({}, '"name":"quickstart"'),
    "list_studies": ({}, "[]"),
    "list_devices": ({}, '"host"'),
    "launch": ({"source": "quickstart", "settings": {"seed": "x"}}, "seed: 'x' is not allowed"),
    "queue_run": ({"source": "quickstart", "settings": {"seed": "x"}}, "seed: 'x' is not allowed"),
    "sweep": ({"source": "quickstart", "grid": {"seed": "x,y"}}, "seed: 'x' is not allowed"),
    # One that stops what is over changes nothing.
    "stop": ({"run": FIRST}, "is not running"),
}
"""Tool → what it is given, and what its answer holds."""


@pytest.mark.parametrize("may_launch", [False, True])
async def test_a_client_that_starts_it_as_a_process(tmp_path: Path, runs: Sequence[RunDir], may_launch: bool) -> None:
    elsewhere = record(tmp_path / "others", FIRST, interrupted.stopped())
    words = ["-P", "-m", "tuiapp", "mcp", "--runs-dir", str(tmp_path / "runs"), *["--allow-launch"] * may_launch]
    started = StdioServerParameters(command=sys.executable, args=words, env={**os.environ}, cwd=tmp_path)
    before = set(psutil.Process().children())
    with (tmp_path / "stderr").open("w+") as errors:
        async with Client(stdio_client(started, errors)) as client:
            (server,) = set(psutil.Process().children()) - before
            tools = (await client.list_tools()).tools
            hints = {tool.name: tool.annotations.read_only_hint for tool in tools if tool.annotations}
            assert hints == {name: name in READING for name in READING + CHANGING * may_launch}
            for name, (given, said) in CALLS.items():
                failed, text = await call(client, name, **given)
                assert failed == (name in CHANGING), text
                assert (said if name in hints else "Unknown tool") in text
            failed, text = await call(client, "show_run", run=str(elsewhere.path))
            assert (failed, "the user allows that by `tuiapp mcp --allow-outside`" in text) == (True, True), text
            assert not (await call(client, "show_run", run=str(runs[0].path)))[0]
        errors.seek(0)
        assert "Traceback" not in errors.read()
    server.wait(30)


async def test_runs_elsewhere_if_that_is_allowed(tmp_path: Path, runs: Sequence[RunDir]) -> None:
    async with Client(make_server(tmp_path, main, may_launch=False, outside=True)) as client:
        failed, text = await call(client, "show_run", run=str(runs[0].path))
        assert (failed, json.loads(text)["run"]) == (False, FIRST)


def test_a_line_for_each_metric(tuiapp: Any, tmp_path: Path, runs: Sequence[RunDir]) -> None:
    done = tuiapp("metrics", FIRST, "loss", "--runs-dir", str(tmp_path / "runs"))
    heading, line = done.out.splitlines()
    assert heading.split() == ["METRIC", "LAST", "LEAST", "GREATEST", "STEPS"]
    assert line.split()[0] == "loss"
    done = tuiapp("metrics", FIRST, "los", "--runs-dir", str(tmp_path / "runs"))
    assert (done.code, "Did you mean 'loss'?" in done.err) == (2, True)


def test_text_that_utf8_cannot_hold_is_answered(tmp_path: Path) -> None:
    show = {"name": "show_run", "arguments": {"run": "\ud800 \\ud800 😀"}}
    asked = [
        (
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        ),
        ("tools/call", show),
        ("\udfff", {}),
    ]
    lines = [{"jsonrpc": "2.0", "id": n, "method": method, "params": given} for n, (method, given) in enumerate(asked)]
    command = [sys.executable, "-P", "-m", "tuiapp", "mcp", "--runs-dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin
        assert server.stdout
        for line in lines:
            server.stdin.write(json.dumps(line).encode() + b"\n")
            server.stdin.flush()
            assert json.loads(server.stdout.readline())["id"] == line["id"]
        server.stdin.close()
        assert server.wait(30) == 0
