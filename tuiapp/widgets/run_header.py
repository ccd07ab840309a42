"""The run in three lines: status, progress, speed and remaining time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from tuiapp.trainers.contract.metrics import evaluation_of
from tuiapp.trainers.state.condition import headline, run_words
from tuiapp.trainers.state.messages import describe_queued, describe_rate
from tuiapp.trainers.state.objective import Objective
from tuiapp.trainers.state.run_state import RunState, names
from tuiapp.trainers.state.signs import SIGNS, Severity
from tuiapp.trainers.state.text import (
    format_count,
    format_duration,
    format_percent,
    format_rate,
    format_seconds,
    join_words,
    plural,
    sanitize,
)
from tuiapp.view.devices.drawing import join_fitting
from tuiapp.widgets.colors import MUTED, TONES
from tuiapp.widgets.text_view import TextView

OWN_TONES: dict[str, Severity] = {"stopped": "warning", "lost": "error"}
"""State → severity, where that is higher on a run's own screen than in a list."""


class RunHeader(TextView):
    DEFAULT_CSS = """
    RunHeader {
        height: 3;
        padding: 0 1;
        background: $background;
    }
    """

    ALLOW_MAXIMIZE: ClassVar[bool | None] = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._state = RunState()
        self._objective: Objective | None = None
        self._now = 0.0

    def show(self, state: RunState, now: float, objective: Objective | None = None) -> None:
        """Shows a run, and what it has come to by its `objective`."""
        self._state, self._now, self._objective = state, now, objective
        self.update(self._build)

    def _build(self, width: int) -> list[Content]:
        state = self._state
        status, style = state_words(state, self._now)
        what, run_id = Content.styled(self._what(), "bold"), Content.styled(state.run_id, MUTED)
        if state.name:
            run_id = Content.assemble((state.name, "bold"), " · ", run_id)
        if state.about.tags:
            run_id = Content.assemble(run_id, (f" · {sanitize(', '.join(state.about.tags))}", MUTED))
        if width >= 100:
            # Why it waits takes the place.
            speed = Content(_fitting(self._speeds(), width - run_id.cell_length - 2))
            first, second = [status, Content(self._where())], [run_id, speed]
            (second if state.status == "queued" else first).insert(1, what)
            lines = [_spread(width, *first), _spread(width, *second)]
        else:
            if state.name:
                what = Content.styled(join_words([state.name, self._what()]), "bold")
            speed = Content(_fitting(self._speeds(), width - what.cell_length - 2))
            where = self._where(width - status.cell_length - 2)
            lines = [_spread(width, status, Content(where)), _spread(width, what or run_id, speed)]
        return [*lines, self._progress(width, style)]

    def _what(self) -> str:
        config, devices = self._state.config, max(len(self._state.devices()), self._state.world_size)
        # Before the start none is known, and a script's one process may own several.
        if (self._state.is_script or not devices) and isinstance(number := config.get("devices"), int):
            devices = number
        if not config:
            return ""
        cpu = "CPU rank" if self._state.process_per_device else "CPU device"
        platform = {"cpu": cpu, "cuda": "GPU"}.get(str(config.get("platform")), "device")
        nodes = len(self._state.nodes) or config.get("nodes")
        where = f" on {nodes} nodes" if isinstance(nodes, int) and nodes > 1 else ""
        return join_words([*names(config), plural(devices, platform) + where])

    def _where(self, room: int = 100) -> str:
        state = self._state
        if state.queued is not None and state.is_live:
            return join_fitting(describe_queued(state.queued).split(" · "), room)
        if state.reading is not None:
            return "reading the run's journal…"
        if state.status == "starting":
            return "waiting for the first event…"
        if not state.step and state.is_live:
            of = f" of {state.total_steps:,}" if state.total_steps else ""
            return f"waiting for the first step{of}…"
        if not state.step and not state.total_steps:
            return ""
        total = f"{state.total_steps:,}"
        done = f"step {state.step:,}" if state.is_live else plural(state.steps_done, "step")
        step = f"step {state.steps_done:>{len(total)},}/{total}" if state.total_steps else done
        number, epochs = state.epoch, state.epochs
        epoch = f"epoch {number:>{len(str(epochs))}}/{epochs}" if epochs else f"epoch {number}" if number else ""
        if (trained := state.epochs_done) is not None:
            epoch = f"{format_count(trained)}/{epochs} epochs" if epochs else f"epochs {format_count(trained)}"
        return join_words([epoch, step])

    def _speeds(self) -> Iterator[str]:
        """Yields speed and what it has come to, the longest words first."""
        state = self._state
        if state.reading is not None:
            yield ""
            return
        rate = state.examples_per_second
        full = long = short = _pace(state.step_s if state.is_live and state.is_moving else None)
        if rate is not None:
            full = describe_rate(rate, state.config)
            long, short = (f"{format_rate(rate)} {unit}" for unit in ("examples/s", "ex/s"))
        epoch = next((row for row in reversed(state.curves.last_epochs(2)) if row.is_whole), None)
        per_epoch = f"{format_seconds(epoch.seconds)}/epoch" if epoch and epoch.seconds else ""
        ways = [(full, per_epoch, 3), (long, per_epoch, 3), (long, "", 3)]
        ways += [(short, per_epoch, detail) for detail in (3, 2, 1, 0)]
        ways += [(short, "", detail) for detail in (3, 2, 1, 0)]
        yield from (join_words([speed, more, self._best(detail)]) for speed, more, detail in ways)
        yield short

    def _best(self, detail: int) -> str:
        """Returns the best value, with more `detail` where it was, and the last one."""
        state, objective = self._state, self._objective
        series = state.curves.first(objective.name) if objective else None
        if objective is None or series is None:
            return ""
        # Of equal evaluations the other figure decides, as of checkpoints.
        _, *figures = evaluation_of(state.curves.names)
        beside = next((name for name in figures if name != objective.name), "") if objective.name in figures else ""
        then = state.curves.first(beside) if beside else None
        if (best := series.best(rises=objective.rises, then=then)) is None:
            return ""
        value, step = best
        where = f"epoch {state.epoch_of(step)}" if state.ends_epoch(step) else f"step {step:,}"
        text = f"best {f'{objective.label} ' if detail else ''}{objective.format(value)}"
        now = f" (now {objective.format(series.last)})" if series.last != value else ""
        return text + (f" at {where}" if detail > 1 else "") + (now if detail > 2 else "")

    def _progress(self, width: int, style: str) -> Content:
        state = self._state
        elapsed, left = state.elapsed(self._now), state.remaining()
        progress = state.progress if state.reading is None else state.reading
        times = join_words(
            [
                f"{format_percent(progress):>5}" if progress is not None else "",
                f"{'waiting' if state.status == 'queued' else 'elapsed'} {format_duration(elapsed)}"
                if elapsed is not None
                else "",
                f"ETA {format_duration(left)}" if left is not None else "",
            ]
        )
        room = max(0, width - len(times) - 1)
        if state.started is not None and progress is None:
            return Content.assemble(" " * (room + 1), times)
        return Content.assemble(_bar(progress or 0.0, room, style), " ", times)


def state_words(state: RunState, now: float) -> tuple[Content, str]:
    """Returns a run's state with its sign, and the style of both."""
    name, words = run_words(state, now)
    phase = f" {state.phase}" if name == state.status else ""
    style = TONES[OWN_TONES.get(name, SIGNS[name].tone)]
    return Content.assemble((f"{SIGNS[name].symbol} {words}", f"bold {style}"), phase), style


def _fitting(words: Iterator[str], room: int) -> str:
    """Returns the first of some words that has room, or else the last."""
    text = ""
    for text in words:
        if len(text) <= room:
            break
    return text


def _pace(step_s: float | None) -> str:
    """Formats the speed in steps per second, or seconds per step if they take longer than one."""
    if step_s is None:
        return ""
    return f"{step_s:.1f} s/step" if step_s > 1 else f"{format_rate(1 / step_s)} steps/s"


def _bar(fraction: float, room: int, style: str) -> Content:
    """Returns how much is done in `room` cells, to half a cell."""
    full, half = divmod(round(fraction * room * 2), 2)
    done = "━" * full + ("╸" if half else "")
    return Content.assemble((done, style), ("─" * (room - len(done)), "$foreground 30%"))


def _spread(width: int, *parts: Content) -> Content:
    """Joins the parts with equal gaps; cuts the first ones if they do not fit."""
    kept = [part for part in parts if part]
    if not kept:
        return Content("")
    while len(kept) > 1 and sum(part.cell_length for part in kept) + 2 * (len(kept) - 1) > width:
        if len(kept) > 2:
            kept.pop(1)
        else:
            kept[0] = kept[0].truncate(max(0, width - kept[1].cell_length - 2), ellipsis=True)
            break
    free = max(0, width - sum(part.cell_length for part in kept))
    gaps = max(1, len(kept) - 1)
    spaces = [free // gaps + (1 if gap < free % gaps else 0) for gap in range(gaps)]
    line = kept[0]
    for part, space in zip(kept[1:], spaces, strict=False):
        line = Content.assemble(line, " " * space, part)
    return line


class ReplayBar(Widget):
    DEFAULT_CSS = """
    ReplayBar {
        height: 1;
        padding: 0 1;
        background: $panel;
        display: none;
    }
    """

    @dataclass
    class Sought(Message):
        """The user clicked a position."""

        fraction: float
        """From 0, the start, to 1, the end."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._mark, self._times, self._fraction = "", "", 0.0
        self._line = (0, 0)
        """Start and length of the progress line, in cells."""

    def show(self, *, speed: float, paused: bool, position: float, duration: float) -> None:
        mark = f"{'❚❚' if paused else '▶ '} REPLAY ×{speed:g}"
        times = f"{format_duration(position)} of {format_duration(duration)}"
        room = max(1, 2 * self.size.width)
        fraction = round(room * position / duration) / room if duration > 0 else 0.0
        if (mark, times, fraction) != (self._mark, self._times, self._fraction):
            self._mark, self._times, self._fraction = mark, times, fraction
            self.refresh()

    def render(self) -> Content:
        mark = Content.styled(f" {self._mark} ", "bold reverse")
        space = "pause" if "▶" in self._mark else "play"
        keys = f" · space {space} · , . seek · < > speed" if self.size.width >= 110 else ""
        end = Content.assemble(f" {self._times}", (keys, MUTED))
        room = max(0, self.size.width - mark.cell_length - 1 - end.cell_length)
        self._line = (mark.cell_length + 1, room)
        return Content.assemble(mark, " ", _bar(min(1.0, self._fraction), room, "$primary"), end)

    def on_click(self, event: events.Click) -> None:
        start, length = self._line
        offset = event.get_content_offset_capture(self)
        if length and start <= offset.x < start + length:
            self.post_message(self.Sought((offset.x - start) / length))


class AlertStrip(Static):
    """Shows the most severe alert, the failure or the final summary; hidden when there is none."""

    DEFAULT_CSS = """
    AlertStrip {
        height: auto;
        max-height: 3;
        padding: 0 1;
        display: none;

        &.-good { background: $success-muted; color: $text-success; }
        &.-info { background: $primary-muted; color: $text-primary; }
        &.-warning { background: $warning-muted; color: $text-warning; }
        &.-error { background: $error-muted; color: $text-error; text-style: bold; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes, markup=False)
        self._text = ""
        self._dismissed = ""

    def dismiss(self) -> None:
        self._dismissed = self._text
        self.display = False

    def on_click(self) -> None:
        self.dismiss()

    def show(self, state: RunState) -> None:
        alert = headline(state)
        text = str(alert or "")
        if text == self._text:
            return
        self._text = text
        self.display = bool(text) and text != self._dismissed
        for severity in ("good", "info", "warning", "error"):
            self.set_class(alert is not None and alert.severity == severity, f"-{severity}")
        self.update(Content(text))
