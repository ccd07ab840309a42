"""`tuiapp doctor`: what can run here, and what prevents the rest."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tuiapp import __version__
from tuiapp.library.environments import Environment, inspect_environments
from tuiapp.library.presets import list_presets, presets_dir
from tuiapp.trainers.config.catalog import BACKENDS, NEWEST_TESTED, is_newer_than_tested
from tuiapp.trainers.config.data_files import DATA_DIR, FILES, data_dir, where
from tuiapp.trainers.config.files import nearest_existing
from tuiapp.trainers.config.installed import installed_version
from tuiapp.trainers.config.machine import Machine, inspect_machine
from tuiapp.trainers.config.settings import is_open_to_others, settings_path
from tuiapp.trainers.contract.orphans import describe_orphans, end_orphans, find_orphans
from tuiapp.trainers.state.text import format_bytes, sanitize
from tuiapp.verbs.output import print_json
from tuiapp.verbs.settings import read_all
from tuiapp.verbs.sources import runs_dir
from tuiapp.view.devices.drawing import SYSTEM_MEMORY

LOW_DISK_BYTES = 2 << 30
LOW_SHM_BYTES = 64 << 20
DISTRIBUTIONS = ("textual", "msgspec", "numpy", "nvidia-ml-py", "torch", "jax", "flax", "optax", "keras")


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    status: Literal["pass", "info", "warn", "fail"]  # info: not available here, which is fine
    detail: str


def examine(options: Namespace) -> int:
    """Prints the findings; returns 0 when all is well, 1 with warnings, 2 when nothing can run or be saved."""
    environments = inspect_environments()
    findings = [
        *_programs(),
        *_backends(environments),
        *_newer_than_tested(environments),
        *_devices(inspect_machine(), environments),
        *_data(),
        *_places(runs_dir(options)),
        *_settings(),
        *_strays(end=options.end_strays),
    ]
    statuses = {finding.status for finding in findings}
    if options.json:
        print_json([asdict(finding) for finding in findings])
    else:
        marks = {"pass": "ok  ", "info": "–   ", "warn": "warn", "fail": "FAIL"}
        for finding in findings:
            print(f"{marks[finding.status]}  {finding.name:14}{sanitize(finding.detail)}")
    return 2 if "fail" in statuses else 1 if "warn" in statuses else 0


def _programs() -> Iterator[Finding]:
    yield Finding("tuiapp", "pass", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    versions = [f"{name} {installed_version(name) or 'not installed'}" for name in DISTRIBUTIONS]
    yield Finding("versions", "pass", ", ".join(versions))
    terminal = os.environ.get("TERM", "")
    if sys.stdout.isatty() and terminal in ("", "dumb"):
        yield Finding("terminal", "warn", f"TERM is {terminal or 'not set'}: the dashboard needs a real one")
    elif "utf" not in (sys.stdout.encoding or "").lower():
        yield Finding("terminal", "warn", f"its encoding is {sys.stdout.encoding}; set LANG to a UTF-8 locale")


def _backends(environments: Sequence[Environment]) -> Iterator[Finding]:
    usable = False
    for environment in environments:
        backend, reason, where = BACKENDS[environment.backend], environment.unavailable, environment.words(None)
        usable |= backend.builtin and not reason
        # Of tuiapp's own, what is not installed is not wanted; another interpreter was named.
        if reason:
            yield Finding(environment.backend, "info" if environment.interpreter.origin == "own" else "warn", reason)
        else:
            yield Finding(environment.backend, "pass", f"can run: {backend.summary}{f' ({where})' if where else ''}")
    if not usable:
        yield Finding("backends", "fail", "none can run here")


def _newer_than_tested(environments: Sequence[Environment]) -> Iterator[Finding]:
    versions = {(name, version) for environment in environments for name, version in environment.versions.items()}
    for name, version in sorted(versions):
        if is_newer_than_tested(name, version):
            tested = ".".join(map(str, NEWEST_TESTED[name]))
            yield Finding(
                name, "info", f"{version} is newer than {tested}, the newest that is tested: runs go on with it"
            )


def _devices(machine: Machine, environments: Sequence[Environment]) -> Iterator[Finding]:
    memory = format_bytes(machine.memory_total_bytes)
    yield Finding("CPU", "pass", f"{machine.cpu_cores} cores, {memory} memory, up to {machine.max_cpu_ranks} ranks")
    for gpu in machine.gpus:
        total = format_bytes(gpu.memory_total_bytes) + (f" ({SYSTEM_MEMORY})" if gpu.has_system_memory else "")
        yield Finding(f"GPU {gpu.number}", "pass", f"{gpu.name}, {total}, {gpu.uuid}, driver {machine.driver}")
    if machine.gpu_limit:
        yield Finding("GPUs", "info", machine.gpu_limit)
    for environment in environments if machine.gpus else ():
        if not environment.unavailable and (reason := environment.without_gpus(machine)):
            yield Finding(environment.backend, "warn", f"not on the GPUs: {reason}")
    if not machine.gpus:
        yield Finding("GPU", "warn" if machine.gpu_trouble else "info", f"{machine.gpu_problem}: runs use the CPU")


def _data() -> Iterator[Finding]:
    if (folder := data_dir()) and not os.path.isdir(folder):
        yield Finding("data", "warn", f"{DATA_DIR} is {folder}, which is not a folder")
        return
    for name, files in FILES.items():
        if directory := where(name):
            yield Finding(name, "pass", f"in {directory}")
        else:
            size = format_bytes(sum(file.bytes for file in files))
            yield Finding(name, "info", f"not on this machine; the first run that uses it downloads {size}")


def _places(runs: Path) -> Iterator[Finding]:
    yield _writable("runs", runs)
    free = shutil.disk_usage(nearest_existing(runs)).free
    yield Finding("disk", "warn" if free < LOW_DISK_BYTES else "pass", f"{format_bytes(free)} free for runs")
    try:
        shm = shutil.disk_usage("/dev/shm").free
        yield Finding("/dev/shm", "warn" if shm < LOW_SHM_BYTES else "pass", f"{format_bytes(shm)} free")
    except OSError as error:
        yield Finding("/dev/shm", "warn", f"cannot be used: {error.strerror}")
    yield _writable("presets", presets_dir())
    for preset in list_presets():
        if preset.error is not None:
            yield Finding("preset", "warn", str(preset.error).splitlines()[0])


def _settings() -> Iterator[Finding]:
    path = settings_path()
    settings, problems = read_all()
    yield from (Finding("settings", "warn", f"{path}: {problem}") for problem in problems)
    if settings.webhook and is_open_to_others(path):
        yield Finding("settings", "warn", f"{path} has a webhook and can be read by others: chmod 600 {path}")
    if settings.command and shutil.which(settings.command[0]) is None:
        yield Finding("settings", "warn", f"the command {settings.command[0]!r} is not found or cannot be run")
    if not problems:
        yield Finding("settings", "pass", f"{path}{'' if os.path.exists(path) else ' (no file: all defaults)'}")


def _strays(*, end: bool) -> Iterator[Finding]:
    if not (strays := find_orphans()):
        return
    left = "; ".join(describe_orphans(strays).splitlines())
    if not end:
        yield Finding("strays", "warn", f"left behind by {left}. To end them: tuiapp doctor --end-strays")
    elif still := end_orphans(strays):
        yield Finding("strays", "warn", f"still there: pid {', '.join(str(stray.pid) for stray in still)}")
    else:
        yield Finding("strays", "pass", f"ended what was left behind by {left}")


def _writable(name: str, directory: Path) -> Finding:
    existing = nearest_existing(directory)
    if os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK):
        return Finding(name, "pass", f"{directory}{'' if existing == directory else ' (will be created)'}")
    return Finding(name, "fail", f"{directory} cannot be written")
