"""Is any device idle, hot or full: one row per GPU; without GPUs the ranks' processes; and the host."""

from __future__ import annotations

from textual.content import Content

from trainers.contract.events import DeviceSample
from tuiapp.state.array_state import letter
from tuiapp.state.run_facts import GpuState, RunFacts
from tuiapp.state.text import (
    MISSING,
    bar,
    fit,
    format_bytes,
    join_words,
    sanitize,
    sparkline,
)
from tuiapp.widgets.palette import MUTED, SEVERITY_STYLES, series_color
from tuiapp.widgets.text_panel import TextPanel

HOT_C = 85.0
IDLE_PERCENT = 10.0
FULL_FRACTION = 0.95

LABEL_CELLS = 13
FIGURE_CELLS = 17
"""What stands to the right of a bar."""


class DevicePanel(TextPanel):
    """Utilization, memory, power and temperature of what the run runs on."""

    WAITING = "waiting for the first sample…"
    LEAST_WIDTH = 30

    def lines(self, state: RunFacts, width: int) -> list[Content]:
        """The latest samples: GPUs, or without any the ranks' processes; then the host."""
        lines: list[Content] = []
        gpus = sorted(state.gpus.values(), key=lambda gpu: gpu.sample.index)
        for gpu in gpus:
            lines += self._gpu(gpu, width)
        if not gpus and any(rank.cpu_percent is not None for rank in state.ranks.values()):
            lines += self._processes(width)
        if state.host:
            lines += self._host(width, in_short=bool(gpus))
        if not lines:
            waiting = self.WAITING if state.is_live else "not available: the run sampled nothing"
            lines = [Content.styled(waiting, MUTED)]
        return lines

    def _letter(self, rank: int | None) -> tuple[str, str]:
        """A rank's device letter and its colour."""
        for index, device in enumerate(self._state.devices()):
            if device[0] == rank:
                return letter(index), series_color(index, dark=self.app.current_theme.dark)
        return " ", ""

    def _gpu(self, gpu: GpuState, width: int) -> list[Content]:
        sample = gpu.sample
        owner = next((rank.rank for rank in self._state.ranks.values() if rank.uuid == sample.uuid), None)
        name, color = self._letter(owner)
        model = sanitize(sample.name, 40).removeprefix("NVIDIA ")
        label = f"{sample.index} {model}"
        used, total = sample.memory_used_bytes, sample.memory_total_bytes
        memory = _share(used, total) if total else "memory not available"
        busy = sample.utilization_percent
        percent = f"{busy:3.0f} %" if busy is not None else "  n/a"
        room = max(4, width - LABEL_CELLS - 4 - len(percent))
        flag = self._flag(gpu)
        label = fit(label, LABEL_CELLS - len(flag) - 1) + " " if flag else fit(label, LABEL_CELLS)
        first = Content.assemble(
            (name, f"bold {color}"),
            f" {label}",
            (flag, SEVERITY_STYLES["warning"]),
            " ",
            (bar(_percent(busy), room), color or "$primary"),
            f" {percent}",
        )
        figures = join_words([memory, *_figures(sample, short=width < 62)])
        history = sparkline(list(gpu.utilization), LABEL_CELLS - 2, 100.0)
        return [first, Content.assemble("  ", (history, MUTED), "   ", figures)]

    def _flag(self, gpu: GpuState) -> str:
        sample = gpu.sample
        if sample.temperature_c is not None and sample.temperature_c >= HOT_C:
            return "▲ hot"
        used, total = sample.memory_used_bytes, sample.memory_total_bytes
        if used and total and used / total >= FULL_FRACTION:
            return "▲ full"
        recent = [value for value in list(gpu.utilization)[-5:] if value is not None]
        idle = len(recent) == 5 and max(recent) < IDLE_PERCENT
        return "◌ idle" if idle and self._state.phase == "training" else ""

    def _processes(self, width: int) -> list[Content]:
        state = self._state
        cores = state.host.cpu_cores if state.host else 1
        # One process may own several devices: it stands at the first of them.
        processes = {rank.pid or -rank.rank: rank for rank in sorted(state.ranks.values(), key=lambda one: -one.rank)}
        share = max(1, cores // max(1, len(processes)))
        lines = []
        for rank in sorted(processes.values(), key=lambda rank: rank.rank):
            name, color = self._letter(rank.rank)
            cpu = rank.cpu_percent
            percent = f"{cpu:4.0f} %" if cpu is not None else "   n/a"
            memory = f"{format_bytes(rank.rss_bytes):>9}"
            room = max(4, width - LABEL_CELLS - 3 - FIGURE_CELLS)
            fraction = cpu / (100 * share) if cpu is not None else None
            line = Content.assemble(
                (name, f"bold {color}"),
                " ",
                fit(f"rank {rank.rank} CPU", LABEL_CELLS),
                " ",
                (bar(fraction, room), color or "$primary"),
                f" {percent} {memory}",
            )
            lines.append(line)
        return [*lines, Content("")]

    def _host(self, width: int, *, in_short: bool) -> list[Content]:
        host = self._state.host
        assert host is not None
        cpu = f"{host.cpu_percent:4.0f} %"
        used, total = host.memory_used_bytes, host.memory_total_bytes
        memory = _share(used, total)
        if in_short:
            words = join_words([f"host CPU {cpu.strip()}", memory, f"load {host.load_1m:.2f}"])
            return [Content.styled(f"  {words}", MUTED)]
        room = max(4, width - LABEL_CELLS - 3 - FIGURE_CELLS)
        rows = (
            ("host CPU", bar(host.cpu_percent / 100, room), cpu),
            ("host memory", bar(used / total if total else None, room), memory),
        )
        lines = [
            Content.assemble("  ", fit(label, LABEL_CELLS), " ", (fill, "$primary"), " ", text)
            for label, fill, text in rows
        ]
        figures = join_words(
            [f"load {host.load_1m:.2f} on {host.cpu_cores} cores", f"{format_bytes(host.disk_free_bytes)} disk free"]
        )
        return [*lines, Content.styled(f"  {figures}", MUTED)]


def _share(used: float | None, total: float) -> str:
    """Both in the unit of the second: "31.2/139 GiB"."""
    amount, unit = format_bytes(total).split()
    scale = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}[unit]
    return f"{used / 1024**scale:.1f}/{amount} {unit}" if used is not None else f"{MISSING}/{amount} {unit}"


def _percent(value: float | None) -> float | None:
    return value / 100 if value is not None else None


def _figures(sample: DeviceSample, *, short: bool) -> list[str]:
    power, limit = sample.power_w, sample.power_limit_w
    watts = f"{power:.0f}{f'/{limit:.0f}' if limit and not short else ''} W" if power is not None else ""
    return [
        watts,
        f"{sample.temperature_c:.0f} °C" if sample.temperature_c is not None else "",
        f"{sample.sm_clock_mhz:,.0f} MHz" if sample.sm_clock_mhz is not None and not short else "",
    ]
