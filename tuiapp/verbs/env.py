"""`tuiapp env`: the environments that ranks run in."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from threading import Event

from tuiapp.library import environments
from tuiapp.library.environments import Environment, inspect_environments
from tuiapp.trainers.config.machine import Machine, inspect_machine, suits_newest
from tuiapp.trainers.state.text import format_bytes, sanitize
from tuiapp.verbs.output import aligned, print_json

SHOWN = ("Collecting", "Downloading", "Installing", "Successfully", "Resolved", "Prepared", "Installed", "ERROR")
"""How the lines of pip and uv begin that say how far they are."""

COLUMNS = ("BACKEND", "ENVIRONMENT", "PYTHON", "VERSIONS", "GPUS")


def list_all(options: Namespace) -> int:
    """Prints a line per backend, and beneath it why it cannot run there."""
    machine, found = inspect_machine(), inspect_environments()
    if options.json:
        facts = [
            {
                "backend": one.backend,
                "interpreter": one.interpreter.python,
                "origin": one.interpreter.origin,
                "python": one.installed.version if one.installed else None,
                "versions": one.versions,
                "unavailable": one.unavailable or None,
                "without_gpus": one.without_gpus(machine) or None,
            }
            for one in found
        ]
        print_json(facts)
        return 0
    heading, *lines = aligned([COLUMNS, *(_cells(one, machine) for one in found)])
    print(heading)
    for one, text in zip(found, lines, strict=True):
        print(sanitize(text))
        if one.unavailable:
            print(sanitize(f"{'':{heading.index(COLUMNS[1])}}cannot run: {one.unavailable}"))
    return 0


def _cells(one: Environment, machine: Machine) -> tuple[str, ...]:
    where = "tuiapp's own" if one.interpreter.origin == "own" else f"{one.interpreter.origin}: {one.interpreter.python}"
    versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
    without_gpus = one.without_gpus(machine)
    gpus = "none here" if not machine.gpus else f"no: {without_gpus}" if without_gpus else "yes"
    return one.backend, where, one.installed.version if one.installed else "–", versions or "–", gpus


def create(options: Namespace) -> int:
    """Makes an environment for a framework; says before how much it downloads and takes, and how far it is."""
    older = options.cuda and not suits_newest(inspect_machine())
    words = environments.describe(options.name, cuda=options.cuda, older=older)
    print(sanitize(words), file=sys.stderr)
    done = 0

    def tell(line: str, size: int) -> None:
        nonlocal done
        done = max(done, size)
        if line.startswith(SHOWN):
            print(sanitize(f"{format_bytes(done):>10}  {line}"), file=sys.stderr)

    # The installer, in a session of its own, would go on.
    cancelled = Event()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, lambda *_: cancelled.set())
    try:
        directory = environments.create(options.name, tell, cuda=options.cuda, older=older, cancelled=cancelled)
    except environments.CancelledError:
        raise KeyboardInterrupt from None
    print(f"made {sanitize(str(directory))}; log: {environments.log_path(options.name)}", file=sys.stderr)
    return 0


def remove(options: Namespace) -> int:
    """Removes an environment that `create` has made."""
    print(f"removed {sanitize(str(environments.remove(options.name)))}", file=sys.stderr)
    return 0
