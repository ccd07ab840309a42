"""What the samples of a run's devices come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests import device_histories as d
from tests import histories as h
from tests.state.folding import fold
from trainers.contract.events import (
    AnyEvent,
    DeviceSample,
    Event,
    GpuProcess,
    HostSample,
    MigInstance,
    RankSample,
    RankStarted,
    TelemetrySource,
)
from tuiapp.state.devices.condition import gpu_condition
from tuiapp.state.devices.efficiency import efficiency_line
from tuiapp.state.devices.figures import gigabytes, joules, share
from tuiapp.state.devices.gpu import HISTORY, MOST_GPUS, same_uuid
from tuiapp.state.devices.gpu_matrix import LABEL_CELLS, gpu_matrix, strangers
from tuiapp.state.devices.gpu_rows import one_row_each, two_a_row, two_rows_each
from tuiapp.state.devices.host import host_line, host_rows
from tuiapp.state.devices.processes import process_rows
from tuiapp.state.devices.spans import Line, line, pad, plain
from tuiapp.state.devices.view import gpu_views
from tuiapp.state.run_facts import RunFacts

WIDTHS = (38, 44, 60, 76, 96, 120, 196)

HISTORIES: dict[str, Sequence[AnyEvent]] = {
    **{f"{count} GPUs": d.on_gpus(count) for count in (1, 2, 4, 8, 16)},
    "all troubles": d.in_trouble(16),
    "MIG": d.on_mig(),
    "telling little": d.telling_little(),
    "no GPUs": h.running(4),
    "nothing": h.beginning(2),
}


def sections(state: RunFacts, width: int) -> list[Line]:
    """Everything that can be shown of the devices."""
    views = gpu_views(state)
    told = [*gpu_matrix(views, width), *strangers(views, width), efficiency_line(state, width)]
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


def after(changes: dict[str, Any], *, before: Sequence[Event] = ()) -> RunFacts:
    """A run on two GPUs, the second of which was sampled like that at last."""
    last = msgspec.structs.replace(h.device_sample(1, 44.0), **changes)
    return fold([*d.on_gpus(2), *before, last])


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
    condition = gpu_views(after(changes))[1].condition
    assert (condition.within(60) if condition else "") == words
    assert (condition.weight if condition else "") == weight


def test_errors_from_before_the_run_are_not_its_own() -> None:
    events = d.on_gpus(2, always={1: {"ecc_uncorrected": 40}})
    assert gpu_views(fold(events))[1].condition is None


def test_an_idle_gpu_stands_out_while_others_work() -> None:
    idle = {"utilization_percent": 0.0}
    views = gpu_views(fold(d.on_gpus(3, last={1: idle})))
    assert [view.condition and view.condition.text for view in views] == [None, "idle, others work", None]
    views = gpu_views(fold(d.on_gpus(2, last={0: idle, 1: idle})))
    assert [view.condition and (view.condition.text, view.condition.weight) for view in views] == [("idle", "info")] * 2
    over = fold([*d.on_gpus(2, last={1: idle}), h.ended("completed", 45.0)])
    assert gpu_views(over)[1].condition is None


def test_a_gpu_that_does_not_tell_its_utilization_is_not_idle() -> None:
    silent = {"utilization_percent": None}
    state = fold(d.on_gpus(2, always={1: silent}))
    assert gpu_views(state)[1].condition is None
    assert set(state.gpus["GPU-0001"].utilization) == {None}
    assert gpu_condition(state.gpus["GPU-0001"], training=True) is None


def test_histories_are_bounded_and_keep_what_is_not_available_apart_from_zero() -> None:
    events: list[AnyEvent] = [
        msgspec.structs.replace(h.device_sample(0, float(n)), utilization_percent=0.0 if n % 2 else None)
        for n in range(3 * HISTORY)
    ]
    gpu = fold(events).gpus["GPU-0000"]
    assert len(gpu.utilization) == len(gpu.power) == HISTORY
    assert list(gpu.utilization)[-2:] == [None, 0.0]


def test_a_gpu_that_is_lost_and_comes_back_keeps_its_name_and_history() -> None:
    lost = DeviceSample(index=1, uuid="GPU-0001", name="", problem="GPU is lost", **h.at(44.0))
    state = after({}, before=[lost])
    gpu = state.gpus["GPU-0001"]
    assert (gpu.name, gpu.is_lost) == ("NVIDIA H200", False)
    assert list(gpu.utilization)[-2] is None
    gone = fold([*d.on_gpus(2), lost])
    assert gone.gpus["GPU-0001"].is_lost
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
    state.apply(TelemetrySource(source="NVML", **h.at(46)))
    assert state.telemetry_problems == {}
    assert [entry.text for entry in state.log][-2:] == ["NVML: Driver Not Loaded", "NVML: works again"]
    state.apply(TelemetrySource(source="sampler", **h.at(47)))
    assert list(state.log)[-1].text == "NVML: works again"
    for number in range(100):
        state.apply(TelemetrySource(source=f"source {number}", problem="\x1b]0;x\x07bad", **h.at(48)))
    assert len(state.telemetry_problems) < 20
    assert set(state.telemetry_problems.values()) == {"bad"}


def test_an_attempt_begins_with_no_devices() -> None:
    failed = TelemetrySource(source="sampler", problem="killed", **h.at(45))
    state = fold([*d.on_gpus(2), failed, *h.resumed()])
    assert (state.gpus, state.telemetry_problems) == ({}, {})
    assert all(rank.process is None and rank.framework is None and not rank.cpu for rank in state.ranks.values())
    assert efficiency_line(state, 200) == [] or "FLOP/s" in plain(efficiency_line(state, 200))


@pytest.mark.parametrize("uuid", ["GPU-8f1c-22", "8F1C-22", "gpu-8f1c-22"])
def test_uuids_of_the_same_device(uuid: str) -> None:
    assert same_uuid("GPU-8f1c-22", uuid)
    assert not same_uuid("GPU-8f1c-23", uuid)
    assert not same_uuid("MIG-8f1c-22", uuid)


def test_ranks_are_matched_by_uuid_and_not_by_index() -> None:
    events = [
        msgspec.structs.replace(event, uuid=f"000{1 - event.rank}") if isinstance(event, RankStarted) else event
        for event in d.on_gpus(2)
    ]
    views = gpu_views(fold(events))
    assert [[rank.rank for rank in view.ranks] for view in views] == [[1], [0]]
    assert [view.mark.text for view in views] == ["b", "a"]


def test_ranks_on_parts_of_a_gpu() -> None:
    (view,) = gpu_views(fold(d.on_mig()))
    assert [rank.rank for rank in view.ranks] == [0, 1]
    assert view.mark.text == " "
    told = "\n".join(plain(one) for one in two_rows_each([view], 76))
    assert "a 2g.35gb" in told
    assert "b 2g.35gb" in told
    assert "rank 1" in told
    assert "not available: utilization, memory busy, fan" in plain(gpu_matrix([view], 76)[-1])


def test_what_no_gpu_tells_is_said_once() -> None:
    told = [plain(one) for one in gpu_matrix(gpu_views(fold(d.telling_little())), 120)]
    text = "\n".join(told)
    assert "n/a" not in text
    for name in ("NVLink GB/s", "ECC corrected", "energy", "held back by", "processes"):
        assert text.count(name) == 1
    assert f"{'fan':<{LABEL_CELLS}} 41 %" in text


def test_a_table_of_idle_gpus_is_as_high_as_one_of_busy_gpus() -> None:
    idle = {"utilization_percent": 0.0, "memory_used_bytes": 0}
    tables = [gpu_matrix(gpu_views(fold(d.on_gpus(2, always={0: one, 1: one}))), 90) for one in ({}, idle)]
    assert len(tables[0]) == len(tables[1])


def test_framework_memory_stands_beside_the_driver_s() -> None:
    table = [plain(one) for one in gpu_matrix(gpu_views(fold(d.on_gpus(2))), 120)]
    told = {one[:LABEL_CELLS].strip(): one[LABEL_CELLS:].split("  ")[0] for one in table}
    assert told["memory"] == "31.2/139 GiB"
    assert (told["framework"], told["its peak"], told["reserved"]) == ("22.4 GiB", "26.1 GiB", "28.0 GiB")


def test_strangers_are_told() -> None:
    views = gpu_views(fold(d.in_trouble(8)))
    (told,) = strangers(views, 120)
    assert plain(told).rstrip() == "! GPU 6 · pid 771 · grace · python3 · 9.50 GiB"
    assert [len(view.strangers) for view in views] == [0, 0, 0, 0, 0, 0, 1, 0]


def test_processes_of_a_container_may_be_anybody_s() -> None:
    views = gpu_views(after({"processes": [GpuProcess(memory_bytes=9 * h.GIB)]}))
    text = "\n".join(plain(one) for one in [*gpu_matrix(views, 90), *strangers(views, 120)])
    assert "? 9.00 GiB" in text
    assert "whose these are cannot be told here" in text
    assert "!" not in text


def test_processes_of_a_run_on_the_cpu() -> None:
    first, second, *_ = [plain(one) for one in process_rows(fold(h.running(2)), 76, details=True)]
    assert first.startswith("a rank 0 CPU ")
    assert " 98 %" in first
    assert "412 MiB (138 MiB shared) · 8 threads · reads 0 B/s · writes 4.00 KiB/s" in second


def test_one_process_for_all_devices_is_one_row() -> None:
    start = h.started(2)
    start = msgspec.structs.replace(start, config={**start.config, "backend": "jax-sharding"})
    ranks = [msgspec.structs.replace(h.rank_started(rank), pid=4200, device=f"cpu:{rank}") for rank in range(2)]
    state = fold([start, *ranks, *h.samples(1, 3.0)])
    told = [plain(one) for one in process_rows(state, 76, details=True)]
    assert len(told) == 2
    assert told[0].startswith("  process CPU ")


def test_host_rows_drop_what_matters_least() -> None:
    host = h.host_sample(5.0)
    full = [plain(one)[:14].strip() for one in host_rows(host, 76)]
    assert full[:6] == ["host CPU", "each core", "host memory", "swap", "/dev/shm", "disk of runs"]
    assert [plain(one)[:14].strip() for one in host_rows(host, 76, 3)] == ["host CPU", "host memory", "disk of runs"]
    nearly = msgspec.structs.replace(host, disk_free_bytes=h.GIB, swap_total_bytes=None, network_rx_bytes_per_s=None)
    told = [plain(one) for one in host_rows(nearly, 76)]
    assert any(one.startswith("▲ disk of runs") for one in told)
    assert "swap, network n/a" in told[-1]


def test_many_cores_take_few_lines() -> None:
    host = msgspec.structs.replace(h.host_sample(5.0), cpu_percent_per_core=[50.0] * 500)
    assert len(host_rows(host, 76)) <= 10
    assert all(len(plain(one)) <= 76 for one in host_rows(host, 76))


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


def test_more_gpus_than_there_can_be_are_not_kept() -> None:
    events = [msgspec.structs.replace(h.device_sample(0, 1.0), uuid=f"GPU-{number}") for number in range(1000)]
    assert len(fold(events).gpus) == MOST_GPUS


def test_efficiency_in_a_line() -> None:
    told = plain(efficiency_line(fold(d.on_gpus(2)), 120))
    assert "GFLOP/s" in told
    assert "MFU" in told
    assert "GPU idle" in told
    assert "examples/J" in told
    assert "MFU" not in plain(efficiency_line(fold(h.running(2)), 120))


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


def test_lines_of_a_given_width() -> None:
    assert plain(pad(line("abc", "", "de"), 7)) == "abcde  "
    assert plain(pad(line("abc", "de"), 5)) == "abcde"
    assert plain(pad(line("abc", "de"), 4)) == "abc…"
    assert plain(pad(line("abcdef"), 3)) == "ab…"
    assert plain(pad(line("abc"), 0)) == ""
