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
    machine, listed = inspect_machine(), inspect_environments()
    if options.json:
        facts = [
            {
                "backend": environment.backend,
                "interpreter": environment.interpreter.python,
                "origin": environment.interpreter.origin,
                "python": environment.installed.version if environment.installed else None,
                "versions": environment.versions,
                "unavailable": environment.unavailable or None,
                "without_gpus": environment.without_gpus(machine) or None,
            }
            for environment in listed
        ]
        print_json(facts)
        return 0
    heading, *lines = aligned([COLUMNS, *(_cells(environment, machine) for environment in listed)])
    print(heading)
    for environment, text in zip(listed, lines, strict=True):
        print(sanitize(text))
        if environment.unavailable:
            print(sanitize(f"{'':{heading.index(COLUMNS[1])}}cannot run: {environment.unavailable}"))
    return 0


def _cells(environment: Environment, machine: Machine) -> tuple[str, ...]:
    interpreter, installed = environment.interpreter, environment.installed
    where = "tuiapp's own" if interpreter.origin == "own" else f"{interpreter.origin}: {interpreter.python}"
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    without_gpus = environment.without_gpus(machine)
    gpus = "none here" if not machine.gpus else f"no: {without_gpus}" if without_gpus else "yes"
    return environment.backend, where, installed.version if installed else "–", versions or "–", gpus


def create(options: Namespace) -> int:
    """Makes an environment for a framework; says before how much it downloads and takes, and how far it is."""
    older = options.cuda and not suits_newest(inspect_machine())
    print(sanitize(environments.describe(options.name, cuda=options.cuda, older=older)), file=sys.stderr)
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
