"""What is shown of a run's devices: GPUs, ranks, processes, host, efficiency."""

from __future__ import annotations

import msgspec
import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.view.devices.drawing import gigabytes, joules, plain, share
from tuiapp.view.devices.gpu_matrix import foreign_processes, gpu_matrix
from tuiapp.view.devices.host import host_rows
from tuiapp.view.devices.view import gpu_views, two_rows_each


def test_ranks_on_parts_of_a_gpu() -> None:
    (view,) = gpu_views(fold(d.on_mig()))
    assert [rank.rank for rank in view.ranks] == [0, 1]
    assert view.mark.text == " "
    told = "\n".join(plain(one) for one in two_rows_each([view], 76))
    assert "a 2g.35gb" in told
    assert "b 2g.35gb" in told
    assert "rank 1" in told
    assert "not available: utilization, memory busy, fan" in plain(gpu_matrix([view], 76)[-1])


def test_a_table_of_idle_gpus_is_as_high_as_one_of_busy_gpus() -> None:
    idle = {"utilization_percent": 0.0, "memory_used_bytes": 0}
    tables = [gpu_matrix(gpu_views(fold(d.on_gpus(2, always={0: one, 1: one}))), 90) for one in ({}, idle)]
    assert len(tables[0]) == len(tables[1])


def test_strangers_are_told() -> None:
    views = gpu_views(fold(d.in_trouble(8)))
    (told,) = foreign_processes(views, 120)
    assert plain(told).rstrip() == "! GPU 6 · pid 771 · grace · python3 · 9.50 GiB"
    assert [len(view.gpu.foreign_processes) for view in views] == [0, 0, 0, 0, 0, 0, 1, 0]


def test_host_rows_drop_what_matters_least() -> None:
    host = h.host_sample(5.0)
    full = [plain(one)[:14].strip() for one in host_rows(host, 76)]
    assert full[:6] == ["host CPU", "each core", "host memory", "swap", "/dev/shm", "runs disk"]
    assert [plain(one)[:14].strip() for one in host_rows(host, 76, 3)] == ["host CPU", "host memory", "runs disk"]
    nearly = msgspec.structs.replace(host, disk_free_bytes=h.GIB, swap_total_bytes=None, network_rx_bytes_per_s=None)
    told = [plain(one) for one in host_rows(nearly, 76)]
    assert any(one.startswith("▲ runs disk") for one in told)
    assert "swap, network n/a" in told[-1]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (gigabytes(None), "   –"), (gigabytes(0.0), "0.00"), (gigabytes(1.31e9), "1.31"), (gigabytes(42e9), "42.0"),
        (gigabytes(450e9), " 450"), (joules(None), ""), (joules(812.0), "812 J"), (joules(25_700.0), "25.7 kJ"),
        (joules(3.2e8), "320 MJ"), (share(None, 139 * h.GIB), "–/139 GiB"), (share(h.GIB, None), "1.00 GiB"),
        (share(None, None), "n/a"), (share(int(99.97 * h.GIB), 100 * h.GIB), "100/100 GiB"),
    ],
)  # fmt: skip
def test_figures(told: str, text: str) -> None:
    assert told == text
