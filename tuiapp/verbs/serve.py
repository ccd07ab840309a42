"""`tuiapp serve`: the dashboard in a browser on this machine, by the textual-serve package.

A dashboard can start programs. So the server listens on the loopback interface alone, and every request, that for the
websocket too, must have the token of the printed address. The first request gets it as a cookie, so that it does not
stay in the address bar. The page may be opened by any name and port of this machine, as `localhost` or one that ssh
forwards. textual-serve starts a dashboard per websocket, and ends it with that.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import secrets
import shlex
import signal
import socket
import sys
from argparse import Namespace
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tuiapp.verbs.output import UsageError
from tuiapp.verbs.sources import runs_dir

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Handler, Middleware

HOST = "127.0.0.1"
FOCUS = """<script>
new MutationObserver((_, observer) => {
  if (document.body.classList.contains("-first-byte")) {
    observer.disconnect();
    document.querySelector("#terminal textarea").focus();
  }
}).observe(document.body, {attributeFilter: ["class"]});
</script></body>"""
"""At the page's end. Before the terminal has the focus no key reaches the dashboard, and its footer is empty."""
SHUTDOWN_S = 3.0  # for dashboards to end, once the server is asked to
POLICY = (
    "default-src 'self'; connect-src 'self' ws:; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
)
"""textual-serve's page asks for a font elsewhere; nothing is loaded from there."""


def serve_dashboard(options: Namespace) -> int:
    """Serves until Ctrl-C or SIGTERM."""
    if importlib.util.find_spec("textual_serve") is None:
        raise UsageError("The dashboard in a browser needs textual-serve: pip install textual-serve")
    try:
        listener = socket.create_server((HOST, options.port))
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise UsageError(f"Cannot listen on {HOST}:{options.port}: {why}. Choose another port: --port N") from None
    command = [sys.executable, "-P", "-m", "tuiapp", "--runs-dir", str(runs_dir(options))]
    with listener:
        asyncio.run(_serve(listener, shlex.join(command)))
    return 0


async def _serve(listener: socket.socket, command: str) -> None:
    from aiohttp import web
    from textual_serve.server import Server

    class Quiet(Server):  # type: ignore[misc, unused-ignore]
        async def on_startup(self, app: web.Application) -> None:
            """Says nothing: the address lacks the token."""

    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    address = f"http://{HOST}:{port}"
    app = await Quiet(command, HOST, port, "tuiapp", address)._make_app()
    app.middlewares.append(_guard(token, address, f"tuiapp-{port}"))
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        print(f"{address}/?token={token}", flush=True)
        print(
            "tuiapp: anyone with this address can do what you can. Ctrl-C ends the server, runs continue",
            file=sys.stderr,
        )
        await ended.wait()
    finally:
        await runner.cleanup()


def is_loopback(url: str) -> bool:
    """Whether an address, such as an Origin, is one of this machine alone, at whatever port."""
    try:
        parts = urlsplit(url)
        name = parts.hostname or ""
        plain = f"{parts.scheme}://{parts.netloc}" == url and "@" not in url and parts.port != 0
        return plain and (name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback)
    except ValueError:
        return False


def _guard(token: str, address: str, cookie: str) -> Middleware:
    """Returns a middleware that answers 403 to what does not have the token, or comes from another page."""
    from aiohttp import web

    url = re.compile(rf"(http|ws)://{re.escape(HOST)}:\d+/")

    def fits(text: str | None) -> bool:
        return text is not None and secrets.compare_digest(text.encode(errors="replace"), token.encode())

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A page from elsewhere must not open the websocket with this browser's cookie.
        elsewhere = not is_loopback(request.headers.get("Origin", address))
        from_address = request.query.get("token")
        if elsewhere or not (fits(from_address) or fits(request.cookies.get(cookie))):
            raise web.HTTPForbidden(text="Open the address that tuiapp serve has printed, with its token.\n")
        if from_address is not None and request.path == "/":
            moved = web.HTTPFound("/")
            moved.set_cookie(cookie, token, httponly=True, samesite="Strict")
            raise moved
        response = await handler(request)
        if isinstance(response, web.Response) and response.content_type == "text/html" and response.text:
            # Not where the server listens, but where the browser has found it.
            host = request.host if is_loopback(f"http://{request.host}") else address.removeprefix("http://")
            response.text = url.sub(rf"\1://{host}/", response.text).replace("</body>", FOCUS)
        if not response.prepared:
            response.headers["Content-Security-Policy"] = POLICY
            response.headers["Referrer-Policy"] = "no-referrer"
        return response

    return guard
