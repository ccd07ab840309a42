"""What a real browser makes of the pages that tuiapp writes and serves: Chromium, without a window."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit import histories as h
from tests.kit.nodes import Cable
from tests.kit.recorded import record
from tests.kit.waiting import wait_until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TUIAPP = [sys.executable, "-P", "-m", "tuiapp"]
DEADLINE_S = 90.0

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


class Page:
    """A page, by the DevTools protocol: https://chromedevtools.github.io/devtools-protocol/."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._connection = connection
        self._asked = 0
        self.said: list[str] = []
        """Errors of its scripts, and what was refused."""

    async def ask(self, method: str, **parameters: object) -> Any:
        """Sends a command; returns its result."""
        self._asked += 1
        await self._connection.send_json({"id": self._asked, "method": method, "params": parameters})
        async with asyncio.timeout(DEADLINE_S):
            while True:
                came = json.loads((await self._connection.receive()).data)
                if came.get("id") == self._asked:
                    return came.get("result")
                if came["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                    self.said.append(json.dumps(came["params"]))

    async def wait(self, expression: str) -> None:
        """Waits until a JavaScript expression holds."""
        async with asyncio.timeout(DEADLINE_S):
            while not (await self.ask("Runtime.evaluate", expression=f"!!({expression})"))["result"].get("value"):
                await asyncio.sleep(0.1)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[str]:
    """The address at which a browser takes commands."""
    assert CHROMIUM is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    own = [f"--user-data-dir={tmp_path / 'chromium'}", "--remote-debugging-port=0"]
    with subprocess.Popen([CHROMIUM, *options, *own], stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            told = tmp_path / "chromium" / "DevToolsActivePort"
            wait_until(lambda: told.exists() and len(told.read_text().splitlines()) == 2, DEADLINE_S)
            yield f"http://127.0.0.1:{told.read_text().splitlines()[0]}"
        finally:
            os.killpg(process.pid, 9)


@asynccontextmanager
async def opened(browser: str, url: str) -> AsyncIterator[Page]:
    """A page in a tab of its own."""
    async with aiohttp.ClientSession() as client:
        async with client.put(f"{browser}/json/new?about:blank") as answer:
            where = (await answer.json())["webSocketDebuggerUrl"]
        async with client.ws_connect(where, max_msg_size=0) as connection:
            page = Page(connection)
            for domain in ("Page", "Runtime", "Log"):
                await page.ask(f"{domain}.enable")
            await page.ask("Page.navigate", url=url)
            yield page


@pytest.mark.by_hand
@pytest.mark.parametrize("way", ["printed", "localhost", "forwarded"])
async def test_the_dashboard(browser: str, tmp_path: Path, way: str) -> None:
    places = {name: str(tmp_path / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "TUIAPP_RUNS_DIR")}
    command = [*TUIAPP, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **places}) as process:
        cable: Cable | None = None
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            port = url.split(":")[2].split("/")[0]
            if way == "forwarded":
                cable = Cable(("127.0.0.1", int(port)))
                url = url.replace(port, str(cable.port))
            if way != "printed":
                url = url.replace("127.0.0.1", "localhost")
            async with opened(browser, url) as page:
                # Set at the first byte that comes over the websocket.
                await page.wait("document.body && document.body.classList.contains('-first-byte')")
                said = [json.loads(text).get("entry", {}).get("text", "") for text in page.said]
                assert not [text for text in said if "WebSocket" in text or "status of 403" in text]
        finally:
            if cable is not None:
                # Ends once its connections have: the dashboard's stays.
                threading.Thread(target=cable.close, daemon=True).start()
            process.terminate()
            process.wait(DEADLINE_S)


async def test_the_report(browser: str, tmp_path: Path) -> None:
    run = record(tmp_path / "runs", h.RUN_ID, h.completed())
    report = tmp_path / "report.html"
    await asyncio.to_thread(subprocess.run, [*TUIAPP, "report", str(run.path), "-o", str(report)], check=True)
    async with opened(browser, report.as_uri()) as page:
        await page.wait(f"document.readyState == 'complete' && document.body.innerText.includes({h.RUN_ID!r})")
        await page.wait("document.querySelectorAll('svg path, svg polyline').length")
        assert page.said == []
