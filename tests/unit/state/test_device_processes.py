"""The ranks' processes among the devices of a run on the CPU."""

from __future__ import annotations

import msgspec
import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import RankSample
from tuiapp.view.devices.drawing import plain
from tuiapp.view.devices.host import host_rows
from tuiapp.view.devices.processes import process_rows


def test_processes_of_a_run_on_the_cpu() -> None:
    first, second, *_ = [plain(one) for one in process_rows(fold(h.running(2)), 96, details=True)]
    assert first.startswith("a rank 0 CPU ")
    assert "412 MiB (138 MiB shared) · 0.98/2 cores · reads 0 B/s · writes 4.00 KiB/s · 8 threads" in second


@pytest.mark.parametrize(("percent", "cores", "each"), [(98.0, 4, 49), (200.0, 4, 100), (98.0, 1, 98), (350.0, 16, 44)])
def test_a_process_has_its_bar_and_its_figure_on_one_scale(percent: float, cores: int, each: int) -> None:
    """That of the host's row: 100 % are all the cores there are for it, not one of them."""
    host = msgspec.structs.replace(h.host_sample(9.0), cpu_cores=cores)
    sample = RankSample(rank=0, cpu_percent=percent, rss_bytes=h.GIB, threads=8, **h.at(9.0))
    spans = process_rows(fold([*h.running(2), host, sample]), 120, details=False)[0]
    (bar,) = [span.text for span in spans if span.track]
    assert f" {each} % " in plain(spans)
    assert bar.count("█") == each * len(bar) // 100


@pytest.mark.parametrize("width", range(36, 62))
def test_no_figure_is_cut_where_there_is_little_room(width: int) -> None:
    """As beside the chart on a terminal of 100 columns, where the panel has 36."""
    state = fold(h.running(2))
    assert state.host is not None
    for details in (True, False):
        rows = [*process_rows(state, width, details=details), *host_rows(state.host, width)]
        assert not [plain(one) for one in rows if "…" in plain(one)]
