"""`tuiapp devices`: the devices of this machine, without a run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from rich.console import Console
from rich.text import Text

from tuiapp.feeds.sampler_feed import SamplerFeed
from tuiapp.terminal.ascii_filter import to_ascii
from tuiapp.terminal.live_lines import LiveLines
from tuiapp.trainers.config.machine import VISIBLE
from tuiapp.trainers.config.options import telemetry_interval_s
from tuiapp.trainers.contract.events import DeviceSample, HostSample, TelemetrySource
from tuiapp.trainers.contract.gpu_leases import leases
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import format_clock, join_words, plural, sanitize
from tuiapp.verbs.bandwidth import measure_bandwidth
from tuiapp.verbs.output import UsageError, print_json, tell
from tuiapp.verbs.sources import runs_dir
from tuiapp.view.devices.drawing import Line, Span, line, pad, stacked
from tuiapp.view.devices.gpu_matrix import foreign_processes, gpu_matrix
from tuiapp.view.devices.host import host_rows
from tuiapp.view.devices.view import GpuView, gpu_views, one_row_each
from tuiapp.view.launch_warnings import describe_lease

SAMPLES_OF_A_LOOK = 2  # some rates take two
QUICK_S = 0.3  # between them
POLL_S = 0.1

OF_BANDWIDTH = ("devices", "device_ids", "platform", "framework", "seconds")
"""Options that go with --bandwidth alone."""

WIDEST = 160
UNKNOWN_WIDTH = 100

_STYLES = {
    "bold": "bold", "muted": "dim", "good": "green", "info": "cyan", "warning": "bold yellow", "error": "bold red"
}  # fmt: skip


def show_devices(options: Namespace) -> int:
    """Prints the devices once, or repeatedly, or measures what they exchange.

    Returns 1 when the sampler hangs or crashes while they are printed once.
    """
    if options.bandwidth:
        if options.watch or options.interval:
            raise UsageError("--bandwidth measures once: omit --watch and --interval.")
        return measure_bandwidth(options)
    if names := [name for name in OF_BANDWIDTH if getattr(options, name) is not None]:
        raise UsageError(f"--{names[0].replace('_', '-')} is for --bandwidth.")
    interval_s = options.interval or telemetry_interval_s()
    feed = SamplerFeed(runs_dir(options), interval_s if options.watch else QUICK_S)
    tables = None if options.json else _Tables(watch=options.watch)
    show = tables.show if tables else partial(_print_json, indent=None if options.watch else 2)
    state = RunState()
    # A server of tools calls this in a thread, which signals do not come to.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number)) if is_main else None
    try:
        for number, _ in enumerate(_moments(feed, state)):
            if options.watch:
                show(state)
            elif feed.failure is not None:
                # The host reports before the driver is called.
                apply(state, feed.failure)
                show(state)
                tell(f"{feed.failure.source}: {feed.failure.problem}")
                return 1
            elif number == SAMPLES_OF_A_LOOK - 1:
                show(state)
                break
    finally:
        feed.close()
        if tables:
            tables.close()
        if is_main:
            signal.signal(signal.SIGTERM, before)
    return 0


def _moments(feed: SamplerFeed, state: RunState) -> Iterator[None]:
    """Folds events into a state; yields when all samples of a moment are in, and after each failure.

    Each moment starts with the host, followed by as many GPUs as before, or else by the next host.
    """
    heard, expected, count, failure = False, -1, 0, None
    while True:
        for event in feed.read(POLL_S):
            if isinstance(event, HostSample):
                if heard and count != expected:
                    expected = count
                    yield
                count = 0
            apply(state, event)
            heard |= isinstance(event, DeviceSample | TelemetrySource)
            count += isinstance(event, DeviceSample)
            if heard and count == expected and isinstance(event, DeviceSample | HostSample):
                yield
        if feed.failure is not failure:
            failure = feed.failure
            yield


def _print_json(state: RunState, *, indent: int | None) -> None:
    gpus = sorted(state.gpus.values(), key=lambda gpu: gpu.sample.index)
    facts = {
        "time": state.last_time,
        "host": _facts(state.host) if state.host else None,
        "gpus": [_facts(gpu.sample) for gpu in gpus],
        "leases": [msgspec.structs.asdict(lease) for lease in leases()],
        "cuda_visible_devices": os.environ.get(VISIBLE),
        "problems": state.telemetry_problems,
    }
    print_json(facts, indent=indent)


def _facts(sample: msgspec.Struct) -> dict[str, object]:
    values = msgspec.structs.asdict(sample)
    return {name: _plain(value) for name, value in values.items() if name not in ("seq", "time", "mono")}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _facts(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


class _Tables:
    def __init__(self, *, watch: bool) -> None:
        self._terminal, self._watch = sys.stdout.isatty(), watch
        in_place = watch and self._terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._live = LiveLines(sys.stdout) if in_place else None
        self._ascii = "utf" not in (sys.stdout.encoding or "").lower()

    def show(self, state: RunState) -> None:
        size = shutil.get_terminal_size((UNKNOWN_WIDTH, 24))
        width = min(WIDEST, size.columns) - 1
        lines = device_lines(state, width, clock=self._watch)
        if self._live:
            if len(lines) >= size.lines:
                lines = device_lines(state, width, clock=True, brief=True)
            self._live.draw([self._text(spans) for spans in lines[: size.lines]])
            return
        text = Text("\n").join([self._text(spans) for spans in ([*lines, []] if self._watch else lines)])
        if self._terminal:
            Console(highlight=False).print(text, soft_wrap=True)
        else:
            print(text, flush=True)

    def close(self) -> None:
        if self._live:
            self._live.close()

    def _text(self, spans: Line) -> Text:
        parts = [(to_ascii(span.text) if self._ascii else span.text, self._style(span)) for span in spans]
        text = Text.assemble(*parts)
        text.rstrip()
        return text

    def _style(self, span: Span) -> str:
        return "cyan" if span.track else _STYLES.get(span.role, "") if isinstance(span.role, str) else ""


def device_lines(state: RunState, width: int, *, clock: bool = False, brief: bool = False) -> list[Line]:
    """Describes devices in `width` cells; `clock` starts with the time, `brief` has a row per GPU, fewer figures."""
    views = gpu_views(state, leases())
    when = format_clock(state.last_time) if clock else ""
    heading = join_words([socket.gethostname(), plural(len(views), "GPU"), when])
    visible = os.environ.get(VISIBLE)
    limit = (
        []
        if visible is None or not views
        else [line(Span(f'runs started here: {VISIBLE}="{sanitize(visible, 60)}"', "muted"))]
    )
    problems = [line(Span(f"{source}: {problem}", "warning")) for source, problem in state.telemetry_problems.items()]
    return stacked(
        [
            [line(Span(heading, "bold")), *limit, *problems],
            one_row_each(views, width) if brief and views else gpu_matrix(views, width),
            _leases(views, width),
            foreign_processes(views, width),
            host_rows(state.host, width) if state.host else [],
        ]
    )


def _leases(views: Sequence[GpuView], width: int) -> list[Line]:
    """Lists the runs that have GPUs of this machine, a line each."""
    return [
        pad([Span(f"  GPU {view.gpu.sample.index} · {describe_lease(lease)}")], width)
        for view in views
        for lease in view.leases
    ]
