"""`tuiapp devices --bandwidth`: how fast devices add up arrays between them, beside what their links can do."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from rich.text import Text

from tuiapp.terminal.ascii_filter import to_ascii
from tuiapp.terminal.live_lines import LiveLines
from tuiapp.trainers.config.bootstrap import module
from tuiapp.trainers.config.catalog import BACKENDS
from tuiapp.trainers.config.gpu_choice import most
from tuiapp.trainers.config.interpreters import find_interpreter
from tuiapp.trainers.config.machine import Link, Machine, inspect_machine
from tuiapp.trainers.config.run_config import build_config
from tuiapp.trainers.contract.bandwidth import Answer, Asked, Begins, Failed, LeftOut, Links, Measured
from tuiapp.trainers.contract.lines import encode_line
from tuiapp.trainers.contract.orphans import TOKEN, kill_tagged
from tuiapp.trainers.launch.prepare import prepare
from tuiapp.trainers.state.text import format_bytes, format_seconds, join_words, plural, sanitize
from tuiapp.verbs.facts import UsageError
from tuiapp.verbs.output import print_json, tell

FRAMEWORKS = {"torch": "torch-ddp", "jax": "jax-sharding"}
"""Framework → the backend whose ranks exchange; the first that can run here is taken."""

SHARE_OF_MEMORY = 4
"""Of what is free: input, output, and what the exchange itself needs."""

SECONDS = 60.0
"""What all sizes may take together, unless the user says otherwise."""

HEADING = f"{'size':>10}{'time':>12}{'algorithm GB/s':>18}{'bus GB/s':>12}"


def measure_bandwidth(options: Namespace) -> int:
    """Measures and prints; returns 1 if it fails midway."""
    asked = _asked(options)
    found = _Found(asked)
    shown: _Rows | _Table = _Table(found) if not options.json and _in_place() else _Rows(found, json=options.json)
    try:
        for answer in _answers(asked):
            found.add(answer)
            shown.show(answer)
    finally:
        shown.close()
    if options.json:
        print_json(found.facts())
    if found.failure:
        tell(found.failure)
    return 1 if found.failure else 0


def _asked(options: Namespace) -> Asked:
    """What the options come to on this machine; raises UsageError, ConfigError, LaunchError."""
    machine = inspect_machine()
    platform = options.platform or ("cuda" if machine.gpus else "cpu")
    names = [name.strip() for name in (options.device_ids or "").split(",") if name.strip()]
    if names and options.devices:
        raise UsageError("--device-ids names the devices, --devices counts them: omit one of them.")
    given = options.devices or len(names)
    count = given or (most(machine.gpus) if platform == "cuda" and machine.gpus else 2)
    if count < 2:
        has = plural(len(machine.gpus), "GPU")
        why = "1 is chosen" if given else f"this machine has {has}" + ", of which 1 is idle" * (len(machine.gpus) > 1)
        cpus = "; --platform cpu measures between CPU ranks" if platform == "cuda" else ""
        raise UsageError(f"an exchange takes two devices or more, and {why}{cpus}.")
    values: dict[str, object] = {
        "backend": FRAMEWORKS[options.framework] if options.framework else _first_backend(platform),
        "platform": platform,
        "devices": count,
        "device_ids": names,
        # Any that can be split.
        "global_batch_size": count,
    }
    plan = prepare(build_config(values), machine)
    room = _room(machine, plan.config.device_ids) // (1 if platform == "cuda" else count)
    token = f"bandwidth-{secrets.token_hex(8)}"
    return Asked(plan=plan, token=token, most_bytes=room // SHARE_OF_MEMORY, seconds=options.seconds or SECONDS)


def _first_backend(platform: str) -> str:
    for name in FRAMEWORKS.values():
        installed = find_interpreter(name).inspect()
        if not BACKENDS[name].unavailable(installed) and not (
            platform == "cuda" and BACKENDS[name].without_gpus(installed)
        ):
            return name
    return next(iter(FRAMEWORKS.values()))


def _room(machine: Machine, uuids: tuple[str, ...]) -> int:
    """Free bytes: of the chosen GPUs the one that has least, or of the host."""
    gpus = [gpu for gpu in machine.gpus if gpu.uuid in uuids]
    known = [gpu.memory_total_bytes - (gpu.memory_used_bytes or 0) for gpu in gpus if gpu.memory_total_bytes]
    return min(known, default=machine.memory_available_bytes or machine.memory_total_bytes or 0)


def _answers(asked: Asked) -> Iterator[Answer]:
    """What the measuring process says; all of its processes are gone afterwards, after Ctrl-C at once."""
    process = subprocess.Popen(
        module("tuiapp.trainers.run.bandwidth"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, TOKEN: asked.token},
        # Ctrl-C is this process's.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(encode_line(asked))
        process.stdin.flush()
        for line in process.stdout:
            yield msgspec.json.decode(line, type=Answer)
        if process.wait():
            yield Failed(why=f"the measuring process ended with exit code {process.returncode}")
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        kill_tagged(asked.token)


@dataclass
class _Found:
    asked: Asked
    library: str = ""
    links: list[Link] = field(default_factory=list)
    begun: int = 0  # bytes of what is being measured
    measured: list[Measured] = field(default_factory=list)
    left_out: LeftOut | None = None
    failure: str = ""

    def add(self, answer: Answer) -> None:
        match answer:
            case Links(gpus=gpus):
                self.links = gpus
            case Begins(library=library, bytes=size):
                self.library, self.begun = library, size
            case Measured():
                self.measured.append(answer)
            case LeftOut():
                self.left_out = answer
            case Failed(why=why):
                self.failure = f"the measurement failed: {sanitize(why)}"

    @property
    def link_bytes_per_s(self) -> float | None:
        """Of the slowest GPU; None if one is not known."""
        rates = [link.bytes_per_s for link in self.links]
        known = [rate for rate in rates if rate is not None]
        return min(known) if known and len(known) == self.asked.plan.config.devices else None

    def rates(self, one: Measured) -> tuple[float, float]:
        """Algorithm and bus bandwidth in bytes a second, as nccl-tests defines them.

        In the best algorithm each device sends, and receives, 2 (n - 1) / n times the array.
        """
        devices, algorithm = self.asked.plan.config.devices, one.bytes / one.seconds
        return algorithm, algorithm * 2 * (devices - 1) / devices

    def facts(self) -> dict[str, object]:
        config = self.asked.plan.config
        links = [{**msgspec.structs.asdict(link), "bytes_per_s": link.bytes_per_s} for link in self.links]
        return {
            "backend": config.backend,
            "library": self.library or None,
            "platform": config.platform,
            "devices": config.devices,
            "device_ids": list(config.device_ids),
            "links": links,
            "link_bytes_per_s": self.link_bytes_per_s,
            "sizes": [
                {
                    "bytes": one.bytes,
                    "calls": one.calls,
                    "seconds": one.seconds,
                    "algorithm_bytes_per_s": self.rates(one)[0],
                    "bus_bytes_per_s": self.rates(one)[1],
                }
                for one in self.measured
            ],
            "left_out": msgspec.structs.asdict(self.left_out) if self.left_out else None,
            "problem": self.failure or None,
        }

    def heading(self) -> list[str]:
        """What exchanges, what the links can do, and the columns."""
        config = self.asked.plan.config
        what = plural(config.devices, "GPU" if config.platform == "cuda" else "CPU device")
        share = f"{'of the links':>15}" if self.link_bytes_per_s else ""
        return [join_words(["all-reduce", what, self.library, config.backend]), *self._links(), "", HEADING + share]

    def _links(self) -> list[str]:
        alike: dict[str, list[str]] = {}
        for link in self.links:
            words = [sanitize(link.name, 40)]
            if link.nvlink_bytes_per_s:
                words.append(f"NVLink ×{link.nvlinks} {_gigabytes(link.nvlink_bytes_per_s)} GB/s")
            if link.pcie_bytes_per_s:
                lanes = f"PCIe {link.pcie_generation} ×{link.pcie_width}"
                words.append(f"{lanes} {_gigabytes(link.pcie_bytes_per_s)} GB/s")
            alike.setdefault(join_words(words), []).append(str(link.index))
        return [f"GPU {', '.join(numbers)}: {words} each way" for words, numbers in alike.items()]

    def row(self, one: Measured) -> str:
        algorithm, bus = self.rates(one)
        limit = self.link_bytes_per_s
        share = f"{f'{100 * bus / limit:.0f} %':>15}" if limit else ""
        cells = f"{format_bytes(one.bytes):>10}{format_seconds(one.seconds):>12}"
        return f"{cells}{_gigabytes(algorithm):>18}{_gigabytes(bus):>12}{share}"

    def end(self) -> str:
        return f"{format_bytes(self.left_out.bytes)} and more: {self.left_out.why}" if self.left_out else ""


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.3g}"


def _in_place() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class _Rows:
    """Prints lines as they come; with `json` what is done, on stderr."""

    def __init__(self, found: _Found, *, json: bool) -> None:
        self._found, self._json, self._headed = found, json, False

    def show(self, answer: Answer) -> None:
        if self._json:
            if isinstance(answer, Begins):
                tell(f"measuring {format_bytes(answer.bytes)}")
            return
        if isinstance(answer, Begins) and not self._headed:
            self._headed = True
            print("\n".join(map(_printable, self._found.heading())), flush=True)
        elif isinstance(answer, Measured):
            print(_printable(self._found.row(answer)), flush=True)

    def close(self) -> None:
        if not self._json and (end := self._found.end()):
            print(f"\n{_printable(end)}")


class _Table:
    """Draws the table in place, with what is being measured below it."""

    def __init__(self, found: _Found) -> None:
        self._found, self._live = found, LiveLines(sys.stdout)
        self._draw("starting the ranks")

    def show(self, answer: Answer) -> None:
        found = self._found
        size = f"{format_bytes(found.begun):>10}"
        self._draw(f"{size}  measuring; Ctrl-C ends it" if isinstance(answer, Begins) else "")

    def close(self) -> None:
        self._draw(f"\n{self._found.end()}")
        self._live.close()

    def _draw(self, last: str) -> None:
        lines = [*self._found.heading(), *map(self._found.row, self._found.measured), *last.splitlines()]
        room = shutil.get_terminal_size((100, 24)).lines - 1
        self._live.draw([Text(_printable(line)) for line in lines[-room:]])


def _printable(line: str) -> str:
    return line if "utf" in (sys.stdout.encoding or "").lower() else to_ascii(line)
