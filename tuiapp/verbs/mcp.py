"""`tuiapp mcp`: the runs for an assistant, by the Model Context Protocol over stdin and stdout.

Each tool is a verb of the command line, called with `--json` in this process: the same checks, words and limits.
Without `--allow-launch` there are only tools that read, without `--allow-outside` only runs of the runs directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shlex
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tuiapp import __version__
from tuiapp.trainers.config.script_syntax import split_words
from tuiapp.trainers.contract.lines import encode_line
from tuiapp.verbs.output import UsageError, collected
from tuiapp.verbs.sources import runs_dir

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

Main: TypeAlias = Callable[[Sequence[str]], int]

INSTRUCTIONS = """\
tuiapp launches and records training runs on this machine. A run is named by its id, a unique prefix of it, "latest", or
its name. Begin with list_runs; metrics gives curves reduced to a few points. Configuration keys and their values are
those of `tuiapp run --set KEY=VALUE`; a wrong one is answered with what is allowed."""

MOST_RUNS, MOST_POINTS = 200, 500


def serve_tools(options: Namespace) -> int:
    """Serves until the client closes its end."""
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("Tools for assistants need the mcp package: pip install 'tuiapp[mcp]'")
    _repair_requests()
    directory, allowed = runs_dir(options), {"may_launch": options.allow_launch, "outside": options.allow_outside}
    make_server(directory, options.main, **allowed).run("stdio")
    return 0


def _repair_requests() -> None:
    """Lets text in requests that UTF-8 cannot hold stand as escapes: the library would leave them without an answer."""
    read, write = os.pipe()
    requests = os.dup(0)
    os.dup2(read, 0)
    os.close(read)

    def pass_on() -> None:
        with open(requests, "rb") as lines, open(write, "wb") as repaired, contextlib.suppress(BrokenPipeError):
            for line in lines:
                with contextlib.suppress(ValueError, RecursionError):
                    line = encode_line(json.loads(line)) if b"\\ud" in line.lower() else line
                repaired.write(line)
                repaired.flush()

    threading.Thread(target=pass_on, daemon=True).start()


def make_server(directory: Path, main: Main, *, may_launch: bool, outside: bool = False) -> MCPServer:
    """Returns the server with its tools; those that launch or stop runs only if the user allows it.

    `main` runs a command. Runs that are not in the directory are named by their paths, if that is allowed.
    """
    from mcp.server.mcpserver import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("tuiapp", instructions=INSTRUCTIONS, version=__version__)
    # Text alone: a structured answer would say all twice.
    tool = partial(server.tool, structured_output=False)
    reads = ToolAnnotations(read_only_hint=True)
    changes = ToolAnnotations(read_only_hint=False, destructive_hint=False)
    stops = ToolAnnotations(read_only_hint=False, destructive_hint=True)

    async def verb(*words: str) -> str:
        return await asyncio.to_thread(_call, main, directory, *words)

    def named(*runs: str) -> Sequence[str]:
        if not outside:
            _check_inside(directory, runs)
        return runs

    @tool(annotations=reads)
    async def list_runs(filter: str = "", sort: str = "", limit: int = 20) -> str:
        """Lists runs with their state and results, newest first.

        filter: words that must all be found (`torch-ddp failed tag:sweep`) and comparisons of configuration keys and
        results (`lr<0.01 test/accuracy>0.9 state:completed group:rates`). sort: a column, key, metric, or "best".
        Where a key and a metric have the same name they are `config.lr` and `metric.lr`.
        """
        by = [f"--sort={sort}"] if sort else []
        return await verb("runs", *by, "--limit", str(_within(limit, MOST_RUNS)), "--", *filter.split())

    @tool(annotations=reads)
    async def show_run(run: str) -> str:
        """Shows one run: configuration (secrets masked), results, checkpoints, alerts, and its first failure."""
        return await verb("show", "--", *named(run))

    @tool(annotations=reads)
    async def metrics(run: str, names: list[str] | None = None, points: int = 40) -> str:
        """Returns last, least and greatest value of a run's metrics, and their curves in at most `points` points.

        names: which metrics; all without it. Values are means over the ranks.
        """
        return await verb("metrics", "--points", str(_within(points, MOST_POINTS)), "--", *named(run), *(names or []))

    @tool(annotations=reads)
    async def compare(runs: list[str]) -> str:
        """Compares two or more runs: the keys in which they differ, and their results.

        runs: ids or names, a group's name, or a filter as of list_runs with a comparison (`tag:sweep`).
        """
        return await verb("compare", "--", *named(*runs))

    @tool(annotations=reads)
    async def list_queue() -> str:
        """Lists the runs that wait for their devices, the next one first, why they wait and when they may start."""
        return await verb("queue", "list")

    @tool(annotations=reads)
    async def list_presets() -> str:
        """Lists the presets: configurations by name, to launch from."""
        return await verb("presets", "list")

    @tool(annotations=reads)
    async def list_studies() -> str:
        """Lists the studies: sweeps, searches, scaling studies, shoot-outs and groups, with their best trial."""
        return await verb("study", "list")

    @tool(annotations=reads)
    async def list_devices() -> str:
        """Lists this machine's GPUs and host, and who uses them."""
        return await verb("devices")

    if not may_launch:
        return server

    @tool(annotations=changes)
    async def launch(
        source: str, settings: dict[str, str] | None = None, name: str = "", group: str = "", arguments: str = ""
    ) -> str:
        """Launches a run at once and returns its id; it goes on by itself.

        source: a preset, a configuration file (.toml), or a script (.py). settings: configuration keys and values.
        arguments: a script's own, as in a shell.
        """
        return await verb("run", *_described(source, settings, name, group), "--detach", *_passed(arguments))

    @tool(annotations=changes)
    async def queue_run(
        source: str, settings: dict[str, str] | None = None, name: str = "", group: str = "", arguments: str = ""
    ) -> str:
        """Launches a run as `launch` does, but it waits in the queue until its devices are free."""
        return await verb("queue", "add", *_described(source, settings, name, group), *_passed(arguments))

    @tool(annotations=changes)
    async def sweep(
        source: str,
        grid: dict[str, str] | None = None,
        search: dict[str, str] | None = None,
        trials: int = 0,
        settings: dict[str, str] | None = None,
        name: str = "",
    ) -> str:
        """Queues a run of every combination of `grid` ({"learning_rate": "0.1,0.01", "seed": "0..4"}).

        With search ({"learning_rate": "log:1e-5..1e-1"}) and trials it searches by Optuna instead.
        """
        words = [f"--grid={key}={values}" for key, values in (grid or {}).items()]
        words += [f"--search={key}={values}" for key, values in (search or {}).items()]
        words += ["--trials", str(trials)] if trials else []
        return await verb("sweep", *_described(source, settings, name), *words)

    @tool(annotations=stops)
    async def stop(run: str) -> str:
        """Stops live runs: each saves a checkpoint and ends. Those that wait in the queue are cancelled.

        run: an id or a name, a group's name, or a filter as of list_runs with a comparison (`tag:sweep`).
        """
        return await verb("stop", "--", *named(run))

    return server


def _call(main: Main, directory: Path, *words: str) -> str:
    """Calls a verb with --json; returns what it would print. Raises ToolError with its words if it fails."""
    from mcp.server.mcpserver.exceptions import ToolError

    end = words.index("--") if "--" in words else len(words)
    facts, narration = list[object](), list[str]()
    collected.set((facts, narration))
    try:
        code = main([f"--runs-dir={directory}", *words[:end], "--json", *words[end:]])
    except SystemExit:
        raise ToolError(f"the command line does not take {shlex.join(words)}") from None
    if code == 2 or not facts:
        raise ToolError("\n".join(narration) or f"it ended with exit code {code}")
    return json.dumps(facts[-1], separators=(",", ":"))


def _check_inside(directory: Path, runs: Sequence[str]) -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    for run in runs:
        is_path, path = os.sep in run or run in (".", ".."), Path(os.path.expanduser(run))
        if is_path and os.path.isdir(path) and path.resolve().parent != directory.resolve():
            raise ToolError(f"{run} is not in {directory}: the user allows that by `tuiapp mcp --allow-outside`.")


def _described(source: str, settings: dict[str, str] | None, name: str, group: str = "") -> list[str]:
    if source.startswith("-"):
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError(f"{source!r} is no preset, file or script.")
    words = [source, *(f"--set={key}={value}" for key, value in (settings or {}).items())]
    words += [f"--name={name}"] if name else []
    return words + ([f"--group={group}"] if group else [])


def _passed(arguments: str) -> list[str]:
    try:
        return ["--", *split_words(arguments)] if arguments else []
    except ValueError as error:
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError(f"arguments: {error}") from None


def _within(number: int, most: int) -> int:
    return max(1, min(number, most))
