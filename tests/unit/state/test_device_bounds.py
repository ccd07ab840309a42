"""Whatever the samples of a run's devices say, it is shown in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import AnyEvent, DeviceSample, HostSample, MigInstance, RankSample
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.devices.drawing import Line, plain
from tuiapp.view.devices.gpu_matrix import foreign_processes, gpu_matrix
from tuiapp.view.devices.host import host_line, host_rows
from tuiapp.view.devices.large import efficiency_line
from tuiapp.view.devices.processes import process_rows
from tuiapp.view.devices.view import gpu_views, one_row_each, two_a_row, two_rows_each

WIDTHS = (38, 44, 60, 76, 96, 120, 196)

HISTORIES: dict[str, Sequence[AnyEvent]] = {
    **{f"{count} GPUs": d.on_gpus(count) for count in (1, 2, 4, 8, 16)},
    "all troubles": d.in_trouble(16),
    "MIG": d.on_mig(),
    "telling little": d.telling_little(),
    "no GPUs": h.running(4),
    "nothing": h.beginning(2),
}


def sections(state: RunState, width: int) -> list[Line]:
    """Everything that can be shown of the devices."""
    views = gpu_views(state)
    told = [*gpu_matrix(views, width), *foreign_processes(views, width), efficiency_line(state, width)]
    told += [*process_rows(state, width, details=True), *process_rows(state, width, details=False)]
    if state.host:
        told += [host_line(state.host, width), *host_rows(state.host, width), *host_rows(state.host, width, 3)]
    for form in (two_rows_each, one_row_each, two_a_row):
        told += form(views, width) if views else []
    return told


@pytest.mark.parametrize("name", HISTORIES)
def test_nothing_is_wider_than_its_place(name: str) -> None:
    state = fold(HISTORIES[name])
    for width in WIDTHS:
        for one in sections(state, width):
            assert len(plain(one)) <= width, plain(one)


@pytest.mark.parametrize("number", [1e300, -1e300, -1, 0])
def test_whatever_a_journal_says_is_shown_in_its_place(number: float) -> None:
    kinds = {name: field for name, field in DeviceSample.__annotations__.items() if name not in ("index", "uuid")}
    whole = int(max(-(2**62), min(2**62, number)))
    figures: dict[str, Any] = {name: number for name, kind in kinds.items() if kind == "float | None"}
    figures |= {name: whole for name, kind in kinds.items() if kind == "int | None"}
    nasty = "\x1b]52;c;aGk=\x07[red]\u202e" + "x" * 5000
    process = GpuProcess(pid=whole, user=nasty, name=nasty, memory_bytes=whole)
    part = MigInstance(uuid=nasty, name=nasty, memory_used_bytes=whole, memory_total_bytes=whole, processes=[process])
    lists: dict[str, Any] = {"processes": [process] * 5000, "mig": [part] * 500, "throttle_reasons": [nasty] * 500}
    sample = DeviceSample(index=whole, uuid="GPU-0001", name=nasty, problem="", **figures, **lists, **h.at(44))
    host: dict[str, Any] = {
        name: number for name, kind in HostSample.__annotations__.items() if kind.startswith("float")
    }
    host |= {name: whole for name, kind in HostSample.__annotations__.items() if kind.startswith("int")}
    samples = [sample, HostSample(**{**host, "cpu_percent_per_core": [number] * 5000}, **h.at(44))]
    rank = RankSample(rank=0, cpu_percent=number, rss_bytes=whole, shared_bytes=whole, threads=whole, **h.at(44))
    state = fold([*d.on_gpus(2), *samples, rank, *d.on_gpus(2)[-2:]])
    for width in WIDTHS:
        lines = sections(state, width)
        assert len(lines) < 500
        for one in lines:
            assert len(plain(one)) <= width
            assert plain(one).isprintable()
