"""The devices with a screen to themselves: graphs, levels, and how they fill the room."""

from __future__ import annotations

import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import AnyEvent
from tuiapp.trainers.state.readings import GAP_S, HISTORY
from tuiapp.view.devices.drawing import Line, axis, columns, graph, plain
from tuiapp.view.devices.gpu_matrix import LABEL_CELLS, gpu_matrix
from tuiapp.view.devices.large import large_view
from tuiapp.view.devices.processes import process_rows_of
from tuiapp.view.devices.view import gpu_views, one_row_each, two_rows_each


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
