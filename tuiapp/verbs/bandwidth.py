"""`tuiapp devices --bandwidth`: how fast devices add up arrays between them, beside what their links can do.

It is a run of the script `tuiapp/examples/all_reduce.py`, listed and ended as every other.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tuiapp.terminal.ascii_filter import to_ascii
from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.gpu_choice import most
from tuiapp.trainers.config.interpreters import find_interpreter
from tuiapp.trainers.config.machine import Link, Machine, inspect_machine
from tuiapp.trainers.config.run_config import RunConfig, build_config
from tuiapp.trainers.contract.sidecars import About
from tuiapp.trainers.launch import launch
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.status import read_config
from tuiapp.trainers.state.summary import summarise
from tuiapp.trainers.state.text import format_bytes, format_seconds, join_words, plural, sanitize
from tuiapp.verbs.output import UsageError, aligned, print_json
from tuiapp.verbs.run import EXIT_CODES, watch
from tuiapp.verbs.sources import runs_dir

FRAMEWORKS = {"torch": "torch-ddp", "jax": "jax-sharding"}
"""Framework → a backend of it; the first whose interpreter has it is taken."""

SCRIPT = Path(__file__).parents[1] / "examples" / "all_reduce.py"
SECONDS = 60.0
LINKS_S = 10.0
"""A driver that takes longer is not asked what the links can do."""


def measure_bandwidth(options: Namespace) -> int:
    """Launches the script, waits for its end, and prints what it measured; returns the run's exit code."""
    machine = inspect_machine()
    framework, config = _read_options(options, machine)
    run = launch(config, runs_dir(options), machine, About(name=f"bandwidth {framework}"))
    state, by_key = watch(run)
    facts = _facts(state, framework, read_config(run))
    if options.json:
        problem = None if state.status == "completed" else summarise(run).reason
        print_json({"run": run.run_id, **facts, "problem": problem})
    else:
        text = "\n".join(_lines(facts))
        print(text if "utf" in (sys.stdout.encoding or "").lower() else to_ascii(text))
    return 130 if by_key else EXIT_CODES[state.status]


def _read_options(options: Namespace, machine: Machine) -> tuple[str, RunConfig]:
    """Returns the framework and the run's configuration; raises UsageError and ConfigError."""
    platform = options.platform or ("cuda" if machine.gpus else "cpu")
    names = [name.strip() for name in (options.device_ids or "").split(",") if name.strip()]
    if names and options.devices:
        raise UsageError("--device-ids names the devices, --devices counts them: omit one of them.")
    chosen = options.devices or len(names)
    count = chosen or (most(machine.gpus) if platform == "cuda" and machine.gpus else 2)
    if count < 2:
        has = plural(len(machine.gpus), "GPU")
        why = "1 is chosen" if chosen else f"this machine has {has}" + ", of which 1 is idle" * (len(machine.gpus) > 1)
        cpus = "; --platform cpu measures between CPU ranks" if platform == "cuda" else ""
        raise UsageError(f"an exchange takes two devices or more, and {why}{cpus}.")
    framework = options.framework or next((name for name in FRAMEWORKS if _can_run(name, platform)), "torch")
    values: dict[str, object] = {
        "backend": "script",
        "script": str(SCRIPT),
        "arguments": f"--framework {framework} --devices {count} --seconds {options.seconds or SECONDS:g}",
        "processes": "per-device" if framework == "torch" else "one",
        "python": find_interpreter(FRAMEWORKS[framework]).python,
        "platform": platform,
        "devices": count,
        "device_ids": names,
    }
    return framework, build_config(values)


def _can_run(framework: str, platform: str) -> bool:
    backend = BACKENDS[FRAMEWORKS[framework]]
    installed = find_interpreter(backend.name).inspect()
    return not backend.unavailable(installed) and not (platform == "cuda" and backend.without_gpus(installed))


def _facts(state: RunState, framework: str, config: RunConfig) -> dict[str, Any]:
    """Returns what was measured, as JSON has it: bytes, seconds, and bytes a second.

    The algorithm bandwidth is the array's size over the time. The bus bandwidth is that times 2 (n - 1) / n for n
    devices, which each device sends, and receives, in the best algorithm: as nccl-tests define them.
    """
    links = _read_links(config) if config.platform == "cuda" else []
    rates = [link.bytes_per_s for link in links if link.bytes_per_s is not None]
    sizes = []
    for size, seconds in _curve(state):
        rate = size / seconds
        bus = rate * 2 * (config.devices - 1) / config.devices
        sizes.append({"bytes": size, "seconds": seconds, "algorithm_bytes_per_s": rate, "bus_bytes_per_s": bus})
    return {
        "framework": framework,
        "library": state.facts.summary.get("library"),
        "platform": config.platform,
        "devices": config.devices,
        "device_ids": list(config.device_ids),
        "links": [msgspec.structs.asdict(link) for link in links],
        "link_bytes_per_s": min(rates) if len(rates) == config.devices else None,
        "sizes": sizes,
        "left_out": state.facts.summary.get("left out"),
    }


def _curve(state: RunState) -> list[tuple[int, float]]:
    """Returns bytes and seconds of each size."""
    curves = state.curves.joined()
    sizes, seconds = curves.first("bytes"), curves.first("seconds")
    steps = np.arange(1.0, sizes.last_step + 1) if len(sizes) else np.empty(0)
    return list(zip(sizes.at(steps).astype(int).tolist(), seconds.at(steps).tolist(), strict=True))


def _read_links(config: RunConfig) -> list[Link]:
    """Returns what the links of the run's GPUs can do; none where the driver does not say."""
    with contextlib.suppress(subprocess.SubprocessError, msgspec.DecodeError):
        command = module("tuiapp.trainers.telemetry.links")
        done = subprocess.run(command, capture_output=True, timeout=LINKS_S, check=True)
        links = msgspec.json.decode(done.stdout, type=list[Link])
        return [link for link in links if link.uuid in config.device_ids]
    return []


def _lines(facts: dict[str, Any]) -> list[str]:
    limit: float | None = facts["link_bytes_per_s"]
    alike: dict[str, list[str]] = {}
    for link in facts["links"]:
        rate = f"{link['kind']} {_gigabytes(link['bytes_per_s'])} GB/s each way" if link["bytes_per_s"] else ""
        alike.setdefault(join_words([sanitize(link["name"], 40), rate]), []).append(str(link["index"]))
    rows = [["size", "time", "algorithm GB/s", "bus GB/s", *["of the links"] * bool(limit)]]
    for size in facts["sizes"]:
        bus = size["bus_bytes_per_s"]
        row = [format_bytes(size["bytes"]), format_seconds(size["seconds"]), _gigabytes(size["algorithm_bytes_per_s"])]
        rows.append([*row, _gigabytes(bus), *([f"{100 * bus / limit:.0f} %"] if limit else [])])
    devices = plural(facts["devices"], "GPU" if facts["platform"] == "cuda" else "CPU device")
    return [
        join_words(["all-reduce", devices, sanitize(str(facts["library"] or "")), facts["framework"]]),
        *(f"GPU {', '.join(numbers)}: {words}" for words, numbers in alike.items()),
        "",
        *aligned(rows),
        *filter(None, [facts["left_out"]]),
    ]


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.3g}"
