"""`tuiapp serve`, asked by a real client: nothing without the token, the dashboard with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest
from yarl import URL

from tests.kit.command_line import Command
from tests.kit.harness import wait_dead
from tuiapp.verbs.serve import is_loopback

PATIENCE = aiohttp.ClientTimeout(total=60)


@pytest.fixture
def served(home: Path) -> Iterator[tuple[URL, subprocess.Popen[str]]]:
    """The address that a server has printed, and its process."""
    command = [sys.executable, "-P", "-m", "tuiapp", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            yield URL(process.stdout.readline().strip()), process
        finally:
            process.kill()


async def test_without_the_token_all_is_forbidden(served: tuple[URL, object]) -> None:
    address, _ = served
    assert address.host == "127.0.0.1"
    assert len(address.query["token"]) >= 32
    async with aiohttp.ClientSession(timeout=PATIENCE) as client:
        for path in ("/", "/ws", "/static/js/textual.js", "/download/x", "/?token=x", "/?token=", "/nothing"):
            async with client.get(address.join(URL(path))) as answer:
                assert answer.status == 403, path
                assert "token" in await answer.text()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(address.with_path("/ws").with_query(token="x"))
        assert refused.value.status == 403


@pytest.mark.nightly
async def test_with_it_the_dashboard_comes(served: tuple[URL, subprocess.Popen[str]]) -> None:
    address, process = served
    # Cookies of addresses that are numbers are kept only if asked for.
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=PATIENCE) as client:
        async with client.get(address) as answer:
            assert answer.status == 200
            assert "token" not in str(answer.url)
            page = await answer.text()
            assert "textual.js" in page
            # The page takes the keys at once: when what textual-serve sets at the first output is there.
            assert page.index('contains("-first-byte")') < page.index("textarea") < page.index("</body>")
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        async with client.get(address.with_path("/static/js/textual.js").with_query(None)) as answer:
            assert answer.status == 200
            assert '.add("-first-byte")' in await answer.text()
        socket_address = address.with_path("/ws").with_query(width=120, height=40)
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect(socket_address, origin="http://example.com")
        async with client.ws_connect(socket_address, origin=str(address.origin())) as websocket:
            drawn = b""
            async with asyncio.timeout(60):
                while b"quickstart" not in drawn:
                    drawn += (await websocket.receive()).data
            children = psutil.Process(process.pid).children(recursive=True)
            assert children
            # A key arrives: the list of all runs, of which there are none.
            await websocket.send_json(["stdin", "\x07"])
            drawn = b""
            async with asyncio.timeout(60):
                while b"no runs" not in drawn.lower():
                    drawn += (await websocket.receive()).data
        wait_dead(children)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:1", True), ("http://localhost:9000", True), ("https://localhost", True),
        ("http://[::1]:8000", True), ("http://a.localhost:1", True), ("http://127.0.0.1.example.com", False),
        ("http://example.com:80", False), ("http://localhost@example.com", False), ("null", False), ("", False),
        ("http://localhost:x", False), ("http://localhost/<script>", False),
    ],
)  # fmt: skip
def test_what_is_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) == here


@pytest.mark.nightly
async def test_ctrl_c_ends_it_with_its_dashboards(served: tuple[URL, subprocess.Popen[str]]) -> None:
    address, process = served
    async with (
        aiohttp.ClientSession(timeout=PATIENCE) as client,
        client.ws_connect(address.with_path("/ws").with_query(token=address.query["token"])) as websocket,
    ):
        await websocket.receive()
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 60) == 0
        wait_dead(children)


def test_what_it_refuses(tuiapp: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tuiapp("serve", "--port", port)
        assert (done.code, done.out) == (2, "")
        assert f"Cannot listen on 127.0.0.1:{port}: Address already in use. Choose another port" in done.err
    assert "'70000' is not a port" in tuiapp("serve", "--port", "70000").err
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "needs textual-serve: pip install textual-serve" in tuiapp("serve").err
