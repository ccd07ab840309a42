"""What is shown of a run's devices: GPUs, ranks, processes, host, efficiency, in whatever room there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import with_values
from tuiapp.trainers.config.machine import GpuProcess
from tuiapp.trainers.contract.events import (
    AnyEvent,
    DeviceSample,
    HostSample,
    MigInstance,
    RankSample,
    RankStarted,
    TelemetrySource,
)
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.readings import GAP_S, HISTORY, MOST_GPUS, plain_uuid
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.devices.drawing import Line, axis, columns, gigabytes, graph, joules, plain, share
from tuiapp.view.devices.gpu_matrix import LABEL_CELLS, foreign_processes, gpu_matrix
from tuiapp.view.devices.host import host_line, host_rows
from tuiapp.view.devices.large import efficiency_line, large_view
from tuiapp.view.devices.processes import (
    PROCESS_KEYS,
    ProcessKey,
    ProcessRow,
    Seen,
    process_rows,
    process_rows_of,
    process_table,
    sort_keys,
)
from tuiapp.view.devices.view import gpu_views, one_row_each, two_a_row, two_rows_each


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


def on_cpus(count: int, seconds: int = 40) -> list[AnyEvent]:
    return [*h.running(count), *(event for second in range(seconds) for event in h.samples(count, 9.0 + second))]


def drawn(events: list[AnyEvent], width: int, height: int) -> list[Line]:
    state = fold(events)
    views = gpu_views(state)
    return large_view(state, views, process_rows_of(state, views, {}, "rank"), width, height, "rank")


def test_a_graph_fills_from_below_and_keeps_a_gap_apart_from_zero() -> None:
    assert graph([100.0, 100.0, None, 0.0, 50.0, 50.0], 3, 2, 100.0) == ["⣿  ", "⣿⢀⣿"]
    # Too few samples for so many dots: a cell each.
    assert graph([100.0, 0.0], HISTORY, 1, 100.0)[0].strip() == "⣿⣀"
    assert graph([], 4, 2, 100.0) == ["    ", "    "]
    assert columns([100.0, 25.0], 2, 1, 2, 100.0) == ["██   ", "██ ▄▄"]
    assert axis(3, "700 W") == ["700 W┤", "     │", "    0┤"]


def test_a_table_with_graphs_has_four_histories_on_one_scale() -> None:
    views = gpu_views(fold(d.on_gpus(2)))
    text = [plain(one) for one in gpu_matrix(views, 115, 3)]
    for name, top in (("utilization", "100 %┤"), ("memory", "100 %┤"), ("power", "700 W┤"), ("temperature", "87 °C┤")):
        place = next(place for place, one in enumerate(text) if one.startswith(name))
        assert text[place + 1].lstrip().startswith(top)
        assert text[place + 3].lstrip().startswith("0┤")
        assert text[place + 3][LABEL_CELLS:].strip()


def test_what_is_high_or_critical_has_a_sign_beside_its_colour() -> None:
    fields = {"memory_used_bytes": 127 * h.GIB, "temperature_c": 88.0}
    views = gpu_views(fold(d.on_gpus(1, last={0: fields})))
    told = {plain(one)[:16].strip(): one for one in gpu_matrix(views, 76, 2)}
    assert "127/139 GiB !" in plain(told["memory"])
    assert "88/87 °C ▲" in plain(told["temperature"])
    assert [span.role for span in told["memory"] if span.track] == ["warning"]
    assert [span.role for span in told["temperature"] if span.track] == ["error"]
    for rows in (one_row_each(views, 115), two_rows_each(views, 76)):
        assert any("91 %!" in plain(one) for one in rows)


def test_histories_of_the_host_keep_a_gap() -> None:
    state = fold([*h.beginning(1), h.host_sample(1.0), h.host_sample(2.0 + GAP_S)])
    assert list(state.host_history.cpu)[1] is None
    assert len(state.host_history.received) == len(state.host_history.memory) == 3


@pytest.mark.parametrize("width", [76, 115, 197])
@pytest.mark.parametrize("height", [34, 54, 70])
def test_the_room_of_a_run_on_the_cpu_is_filled(width: int, height: int) -> None:
    lines = [plain(one) for one in drawn(on_cpus(2), width, height)]
    assert height - 3 <= len(lines) <= height
    assert all(len(one) <= width for one in lines)
    for words in ("host CPU", "each core", "host memory", "network", "runs disk", "/dev/shm", "swap", "rank 1"):
        assert any(words in one for one in lines), words


@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_room_of_a_run_on_gpus_is_filled(count: int) -> None:
    lines = [plain(one) for one in drawn(d.on_gpus(count), 197, 54)]
    assert 52 <= len(lines) <= 54
    assert all(len(one) <= 197 for one in lines)


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


def test_a_gpu_that_is_lost_and_comes_back_keeps_its_name_and_history() -> None:
    lost = DeviceSample(index=1, uuid="GPU-0001", name="", problem="GPU is lost", **h.at(44.0))
    state = fold(d.sampled_last({}, before=[lost]))
    gpu = state.gpus["GPU-0001"]
    assert (gpu.name, gpu.sample.problem) == ("NVIDIA H200", "")
    assert list(gpu.utilization)[-2] is None
    gone = fold([*d.on_gpus(2), lost])
    assert gone.gpus["GPU-0001"].sample.problem
    text = "\n".join(plain(one) for one in gpu_matrix(gpu_views(gone), 76))
    assert "b 1 H200" in text
    assert "✖ GPU is lost" in text


def test_a_sampler_that_was_away_leaves_a_gap() -> None:
    state = fold([*d.on_gpus(1), h.device_sample(0, 60.0)])
    assert list(state.gpus["GPU-0000"].utilization)[-2] is None
    assert None not in list(state.gpus["GPU-0000"].utilization)[:-2]


def test_a_source_s_problem_stands_until_it_works_again() -> None:
    failed = TelemetrySource(source="NVML", problem="Driver Not Loaded", **h.at(45))
    state = fold([*d.on_gpus(1), failed])
    assert state.telemetry_problems == {"NVML": "Driver Not Loaded"}
    apply(state, TelemetrySource(source="NVML", **h.at(46)))
    assert state.telemetry_problems == {}
    assert [entry.text for entry in state.log][-2:] == ["NVML: Driver Not Loaded", "NVML: works again"]
    apply(state, TelemetrySource(source="sampler", **h.at(47)))
    assert list(state.log)[-1].text == "NVML: works again"
    for number in range(100):
        apply(state, TelemetrySource(source=f"source {number}", problem="\x1b]0;x\x07bad", **h.at(48)))
    assert len(state.telemetry_problems) < 20
    assert set(state.telemetry_problems.values()) == {"bad"}


@pytest.mark.parametrize("uuid", ["GPU-8f1c-22", "8F1C-22", "gpu-8f1c-22"])
def test_uuids_of_the_same_device(uuid: str) -> None:
    assert plain_uuid("GPU-8f1c-22") == plain_uuid(uuid)
    assert plain_uuid("GPU-8f1c-23") != plain_uuid(uuid)
    assert plain_uuid("MIG-8f1c-22") != plain_uuid(uuid)


def test_ranks_are_matched_by_uuid_and_not_by_index() -> None:
    events = [
        msgspec.structs.replace(event, uuid=f"000{1 - event.rank}") if isinstance(event, RankStarted) else event
        for event in d.on_gpus(2)
    ]
    views = gpu_views(fold(events))
    assert [[rank.rank for rank in view.ranks] for view in views] == [[1], [0]]
    assert [view.mark.text for view in views] == ["b", "a"]


def test_more_gpus_than_there_can_be_are_not_kept() -> None:
    events = [msgspec.structs.replace(h.device_sample(0, 1.0), uuid=f"GPU-{number}") for number in range(1500)]
    assert len(fold(events).gpus) == MOST_GPUS


def test_efficiency_in_a_line() -> None:
    told = plain(efficiency_line(fold(d.on_gpus(2)), 120))
    assert told.startswith("  model 14.8 GFLOP/s · MFU ")
    assert "GPU idle time" in told
    assert "examples/J" in told


@pytest.mark.parametrize(
    ("width", "text"),
    [(60, "model 59.1 GFLOP/s · MFU 0.0 % · GPU idle time 10 %"), (49, "59.1 GFLOP/s · MFU 0.0 % · GPU idle time 10 %"),
     (34, "model 59.1 GFLOP/s · MFU 0.0 %"), (24, "model 59.1 GFLOP/s")],
)  # fmt: skip
def test_flops_go_without_their_name_where_that_makes_room_beside_mfu(width: int, text: str) -> None:
    assert plain(efficiency_line(fold(d.on_gpus(8)), width)).strip() == text


def test_flops_without_mfu_have_their_name_or_make_room() -> None:
    waited = with_values(h.steps(0, 131, 140, 9.0), data_wait=[0.01] * 10)
    state = fold([*h.running(2), waited])
    told = [plain(efficiency_line(state, width)).strip() for width in (44, 34)]
    assert told == ["model 14.8 GFLOP/s · data wait 20.0 %", "data wait 20.0 %"]
    assert plain(efficiency_line(fold(h.running(2)), 34)).strip() == "model 14.8 GFLOP/s"


CONDITIONS: list[tuple[str, dict[str, Any], str, str]] = [
    ("well", {}, "", ""),
    ("at its limit", {"temperature_c": 87.0}, "▲ hot", "warning"),
    ("hot without a limit", {"temperature_c": 85.0, "temperature_limit_c": None}, "▲ hot", "warning"),
    ("warm without a limit", {"temperature_c": 84.0, "temperature_limit_c": None}, "", ""),
    ("no temperature", {"temperature_c": None}, "", ""),
    ("slowed", {"throttle_reasons": ["too hot", "power brake"]}, "▲ slowed: too hot, power brake", "warning"),
    ("slowed and at its limit", {"throttle_reasons": ["power limit", "hot"]}, "▲ slowed: hot", "warning"),
    ("limited", {"throttle_reasons": ["power limit"]}, "▾ limited: power limit", "info"),
    ("full", {"memory_used_bytes": 138 * h.GIB}, "▲ memory full", "warning"),
    ("lost", {"problem": "GPU is lost\x1b[2J", "temperature_c": None}, "✖ GPU is lost", "error"),
    ("a new error", {"ecc_uncorrected": 1}, "✖ 1 ECC error", "error"),
    ("errors that were mended", {"ecc_corrected": 7}, "", ""),
    ("no ECC", {"ecc_corrected": None, "ecc_uncorrected": None}, "", ""),
    ("shared", {"processes": [GpuProcess(pid=7, user="grace", memory_bytes=5)]}, "! shared with grace", "warning"),
    ("shared with somebody", {"processes": [GpuProcess(pid=7)]}, "! shared with another process", "warning"),
    ("processes of a container", {"processes": [GpuProcess(memory_bytes=5)]}, "", ""),
    ("idle for a moment", {"utilization_percent": 0.0}, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words", "weight"), [case[1:] for case in CONDITIONS], ids=[c[0] for c in CONDITIONS]
)
def test_what_stands_out(changes: dict[str, Any], words: str, weight: str) -> None:
    condition = gpu_views(fold(d.sampled_last(changes)))[1].condition
    assert (condition.within(60) if condition else "") == words
    assert (condition.severity if condition else "") == weight


def test_errors_from_before_the_run_are_not_its_own() -> None:
    events = d.on_gpus(2, always={1: {"ecc_uncorrected": 40}})
    assert gpu_views(fold(events))[1].condition is None


def test_an_idle_gpu_stands_out_while_others_work() -> None:
    idle = {"utilization_percent": 0.0}
    views = gpu_views(fold(d.on_gpus(3, last={1: idle})))
    assert [view.condition and view.condition.text for view in views] == [None, "idle, others work", None]
    views = gpu_views(fold(d.on_gpus(2, last={0: idle, 1: idle})))
    assert [view.condition and (view.condition.text, view.condition.severity) for view in views] == [
        ("idle", "info")
    ] * 2
    over = fold([*d.on_gpus(2, last={1: idle}), h.ended("completed", 45.0, step=800)])
    assert gpu_views(over)[1].condition is None


SEEN = {
    4100: Seen(1, "ada", 1.0, 60 * h.MIB, "python -m tuiapp.trainers.run.supervisor"),
    4121: Seen(4100, "ada", 97.0, 900 * h.MIB, "python -m tuiapp.trainers.rank.process 0"),
    4122: Seen(4100, "ada", 91.0, 901 * h.MIB, "python -m tuiapp.trainers.rank.process 1"),
    4300: Seen(4121, "ada", 12.0, 80 * h.MIB, "python loader"),
    771: Seen(1, "grace", 350.0, 9 * h.GIB, "python3 other.py"),
    9: Seen(1, "root", None, h.MIB, "sshd"),
}


def rows_of(events: list[AnyEvent], sort: ProcessKey = "rank") -> list[ProcessRow]:
    state = fold(events)
    return process_rows_of(state, gpu_views(state), SEEN, sort)


def test_the_run_s_own_processes_come_first_and_are_marked() -> None:
    rows = rows_of(h.running(2))
    assert [(row.pid, row.role) for row in rows] == [
        (4121, "rank 0"), (4300, "of rank 0"), (4122, "rank 1"), (4100, "supervisor"), (771, ""), (9, ""),
    ]  # fmt: skip
    heading, first, *others = [plain(one) for one in process_table(rows, 180, 9, "rank")]
    assert "rank ▾" in heading
    assert first.startswith("a ")
    assert "python -m tuiapp.trainers.rank.process 0" in first
    assert "grace" in others[3]
    # Nobody knows the use of a process that was seen once.
    assert "–" in others[4]


def test_it_is_sorted_by_a_key() -> None:
    for key in PROCESS_KEYS:
        assert any("▾" in plain(one) for one in process_table(rows_of(d.in_trouble(8), key), 150, 20, key)[:1]), key
    assert rows_of(h.running(2), "CPU %")[0].pid == rows_of(h.running(2), "memory")[0].pid == 771
    assert rows_of(h.running(2), "pid")[0].pid == 9


def test_strangers_on_the_run_s_gpus_have_a_sign() -> None:
    rows = rows_of(d.in_trouble(8), "GPU memory")
    stranger = next(row for row in rows if row.pid == 771)
    assert (stranger.gpus, stranger.shares, stranger.user) == ([6], True, "grace")
    lines = [plain(one) for one in process_table(rows, 115, 30, "GPU memory")]
    assert any(one.startswith("!") and " 771 " in one for one in lines)
    assert "GPU memory ▾" in lines[0]
    assert all(len(one) <= 115 for one in lines)


def test_those_that_do_not_fit_are_counted() -> None:
    lines = [plain(one) for one in process_table(rows_of(h.running(2)), 180, 3, "rank")]
    assert len(lines) == 4
    assert "and 4 more" in lines[-1]


def test_keys_that_nothing_has_are_left_out() -> None:
    assert sort_keys(rows_of(d.in_trouble(8))) == list(PROCESS_KEYS)
    assert sort_keys(rows_of([h.host_sample(1.0)])) == ["CPU %", "memory", "pid"]
