"""`tuiapp devices`: what the devices of this machine do, without a run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Iterable
from types import FrameType

import msgspec

from trainers.config.environment import telemetry_interval_s
from trainers.contract.events import AnyEvent, TelemetrySource
from tuiapp.feeds.sampler_feed import SamplerFeed, SamplerGone, existing
from tuiapp.state.devices.gpu_matrix import gpu_matrix, strangers
from tuiapp.state.devices.gpu_rows import one_row_each
from tuiapp.state.devices.host import host_rows
from tuiapp.state.devices.spans import Line, Span, line
from tuiapp.state.devices.view import gpu_views
from tuiapp.state.run_state import RunState
from tuiapp.state.text import format_clock, join_words, plural, sanitize
from tuiapp.verbs.sources import runs_dir

SAMPLES_OF_A_LOOK = 2
"""Some rates take two."""

QUICK_S = 0.3
"""Between them."""

WIDEST = 160
UNKNOWN_WIDTH = 100

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

_STYLES = {"bold": "1", "muted": "2", "good": "32", "info": "36", "warning": "1;33", "error": "1;31"}
"""A span's role → how a terminal shows it."""


def show_devices(options: Namespace) -> int:
    """Print the devices once, or again and again; 1 when the sampler hangs or crashes."""
    interval_s = options.interval or telemetry_interval_s()
    feed = SamplerFeed(existing(runs_dir(options)), interval_s if options.watch else QUICK_S)
    printer = _JsonLines(indent=None if options.watch else 2) if options.json else _Tables(watch=options.watch)
    state = RunState()
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        feed.start()
        for number, events in enumerate(feed.samples()):
            _fold(state, events)
            if options.watch or number == SAMPLES_OF_A_LOOK - 1:
                printer.show(state)
            if not options.watch and number == SAMPLES_OF_A_LOOK - 1:
                return 0
    except SamplerGone as problem:
        # The host has told something before the driver was asked.
        _fold(state, [*feed.pending, TelemetrySource(source="sampler", problem=str(problem))])
        if state.host is not None:
            printer.show(state)
        print(f"tuiapp: {sanitize(str(problem))}", file=sys.stderr)
    finally:
        feed.close()
        printer.close()
        signal.signal(signal.SIGTERM, before)
    return 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _fold(state: RunState, events: Iterable[AnyEvent]) -> None:
    for event in events:
        state.apply(event)


class _JsonLines:
    """A JSON object for each sample; what is not available is null."""

    def __init__(self, indent: int | None) -> None:
        self._indent = indent

    def show(self, state: RunState) -> None:
        """Print the latest sample."""
        gpus = sorted(state.gpus.values(), key=lambda gpu: gpu.sample.index)
        found = {
            "time": state.last_time,
            "host": _facts(state.host) if state.host else None,
            "gpus": [_facts(gpu.sample) for gpu in gpus],
            "problems": state.telemetry_problems,
        }
        print(json.dumps(found, indent=self._indent), flush=True)

    def close(self) -> None:
        """Nothing is left to be done."""


def _facts(sample: msgspec.Struct) -> dict[str, object]:
    """All fields of a sample but its place in a journal."""
    found = msgspec.structs.asdict(sample)
    return {name: _plain(value) for name, value in found.items() if name not in ("seq", "time", "mono")}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _facts(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value


class _Tables:
    """Tables for people: on a terminal that is watched each takes the place of the one before."""

    def __init__(self, *, watch: bool) -> None:
        terminal = sys.stdout.isatty()
        self._watch, self._in_place = watch, watch and terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._styled = terminal and not os.environ.get("NO_COLOR")
        self._ascii = "utf" not in (sys.stdout.encoding or "").lower()
        self._size = shutil.get_terminal_size((UNKNOWN_WIDTH, 24))
        self._height = 0
        """Lines that stand there and are to be written over."""
        if self._in_place:
            sys.stdout.write(HIDE_CURSOR)

    def show(self, state: RunState) -> None:
        """Print the latest sample."""
        size = shutil.get_terminal_size((UNKNOWN_WIDTH, 24))
        width = min(WIDEST, size.columns) - 1
        lines = device_lines(state, width, clock=self._watch)
        if self._in_place and len(lines) >= size.lines:
            lines = device_lines(state, width, clock=True, brief=True)[: size.lines - 1]
        texts = [self._text(spans) for spans in lines]
        if not self._in_place:
            print("\n".join([*texts, ""] if self._watch else texts), flush=True)
            return
        # What a narrower terminal has broken up into more lines cannot be counted: begin at its top.
        up = f"\x1b[{self._height}F" if self._height else ""
        back = up if size == self._size else "\x1b[H\x1b[2J"
        sys.stdout.write(back + "".join(f"{text}\x1b[K\n" for text in texts) + "\x1b[J")
        sys.stdout.flush()
        self._size, self._height = size, len(texts)

    def close(self) -> None:
        """Give the terminal its cursor back."""
        if self._in_place:
            with contextlib.suppress(OSError):
                sys.stdout.write(SHOW_CURSOR)
                sys.stdout.flush()

    def _text(self, spans: Line) -> str:
        return "".join(self._span(span) for span in spans).rstrip()

    def _span(self, span: Span) -> str:
        text = span.text
        if self._ascii:
            from tuiapp.terminal.ascii_filter import to_ascii

            text = to_ascii(text)
        style = "36" if span.track else _STYLES.get(span.role, "") if isinstance(span.role, str) else ""
        return f"\x1b[{style}m{text}\x1b[0m" if self._styled and style and text.strip() else text


def device_lines(state: RunState, width: int, *, clock: bool = False, brief: bool = False) -> list[Line]:
    """What is told of the devices without a run.

    Args:
        state: Into which the samples were folded.
        width: In cells.
        clock: Whether the time stands above.
        brief: A row for each GPU, and not all figures.
    """
    views = gpu_views(state)
    when = format_clock(state.last_time) if clock else ""
    heading = join_words([socket.gethostname(), plural(len(views), "GPU"), when])
    problems = [line(Span(f"{source}: {problem}", "warning")) for source, problem in state.telemetry_problems.items()]
    sections = [
        [line(Span(heading, "bold")), *problems],
        one_row_each(views, width) if brief and views else gpu_matrix(views, width),
        strangers(views, width),
        host_rows(state.host, width) if state.host else [],
    ]
    told: list[Line] = []
    for section in filter(None, sections):
        told += [[], *section] if told else section
    return told
