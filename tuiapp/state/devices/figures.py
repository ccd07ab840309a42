"""Figures of devices in formats of steady width."""

from __future__ import annotations

from trainers.contract.events import DeviceSample, HostSample
from tuiapp.state.text import MISSING, format_bytes

NOT_AVAILABLE = "n/a"

_SCALES = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}


def percent(value: float | None) -> str:
    """Formats a percentage in five cells: " 97 %", "100 %"."""
    return f"{value:3.0f} %" if value is not None else f"{NOT_AVAILABLE:>5}"


def share(used: float | None, total: float | None) -> str:
    """Formats both in the unit of the second: "31.2/139 GiB"."""
    if not total:
        return format_bytes(used) if used is not None else NOT_AVAILABLE
    unit = format_bytes(total).split()[1]
    scale = 1024 ** _SCALES[unit]
    return f"{_tenths(used / scale) if used is not None else MISSING}/{_tenths(total / scale)} {unit}"


def _tenths(value: float) -> str:
    return f"{value:.{1 if value < 99.95 else 0}f}"


def watts(sample: DeviceSample, *, limit: bool = True) -> str:
    """Formats power and its limit: "612/700 W"; "" where not available."""
    if sample.power_w is None:
        return ""
    most = f"/{sample.power_limit_w:.0f}" if limit and sample.power_limit_w else ""
    return f"{sample.power_w:3.0f}{most} W"


def cores(percent: float) -> str:
    """Formats per cent of one core as a number of cores, in three significant digits: "0.98", "12.3"."""
    return _three_digits(percent / 100)


def celsius(value: float | None, limit: float | None = None) -> str:
    """Formats a temperature: "64 °C"; with the slowdown temperature: "64/87 °C"; "" where not available."""
    if value is None:
        return ""
    return f"{value:2.0f}{f'/{limit:.0f}' if limit is not None else ''} °C"


def megahertz(value: float | None) -> str:
    """Formats a clock in nine cells: "1,980 MHz"; "" where not available."""
    return f"{value:5,.0f} MHz" if value is not None else ""


def gigabytes(rate: float | None) -> str:
    """Formats traffic of a link in GB/s, in four cells: "1.31", "42.0", " 123"."""
    if rate is None:
        return f"{MISSING:>4}"
    return f"{_three_digits(rate / 1e9):>4}"


def traffic(received: float | None, sent: float | None) -> str:
    """Formats traffic of a link in GB/s: "↓1.31 ↑0.42"; "" where neither is available."""
    if received is None and sent is None:
        return ""
    return f"↓{gigabytes(received)} ↑{gigabytes(sent)}"


def rate(bytes_per_s: float | None) -> str:
    """Formats a rate in at most ten cells: "18.0 KiB/s"."""
    return f"{format_bytes(bytes_per_s)}/s" if bytes_per_s is not None else NOT_AVAILABLE


def network(host: HostSample | None) -> str:
    """Formats a host's network traffic per second in at most 13 cells: "↓1.20G ↑37.5M"; "" where not available."""
    if host is None or host.network_rx_bytes_per_s is None:
        return ""
    return f"↓{_short(host.network_rx_bytes_per_s)} ↑{_short(host.network_tx_bytes_per_s)}"


def _short(count: float | None) -> str:
    """Formats bytes in at most five cells: "37.5M" for MiB."""
    return format_bytes(count).removesuffix("iB").replace(" ", "")


def joules(energy: float | None) -> str:
    """Formats energy in three significant digits: "341 kJ"; "" where not available."""
    if energy is None:
        return ""
    return f"{energy:.0f} J" if abs(energy) < 999.5 else f"{_scaled(energy / 1000, 'kMGT')}J"


def flops(per_second: float | None) -> str:
    """Formats floating point operations per second in three significant digits: "41.3 TFLOP/s"."""
    return f"{_scaled(per_second, ' kMGTP')}FLOP/s" if per_second is not None else MISSING


def _scaled(value: float, prefixes: str) -> str:
    place = 0
    while abs(value) >= 999.5 and place < len(prefixes) - 1:
        value, place = value / 1000, place + 1
    return f"{_three_digits(value)} {prefixes[place].strip()}"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"
