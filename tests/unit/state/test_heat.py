"""Heat maps: which rows there are, which one stands out, and what a cell says with a colour and without."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kit import device_histories as devices
from tests.kit import histories as h
from tests.kit import node_histories as nodes
from tests.kit.folding import fold
from tuiapp.trainers.contract.metrics import LOSS, STEP_TIME
from tuiapp.trainers.state.known_metrics import UTILIZATION
from tuiapp.trainers.state.signs import Condition
from tuiapp.view.chart import ChartOptions, build_chart
from tuiapp.view.devices.drawing import plain
from tuiapp.view.devices.large import device_heats
from tuiapp.view.devices.view import gpu_views
from tuiapp.view.heat import BROKEN, EMPTY, GLYPHS, Member, heat_lines, heat_of, levels
from tuiapp.view.raster import HEAT, rasterize
from tuiapp.widgets.chart_panel import legend
from tuiapp.widgets.colors import heat_colors

SLOW = Condition("slow", "warning")
SIZE = {"columns": 80, "rows": 10}


def members(count: int, per_node: int = 0, slow: int = -1) -> list[Member]:
    return [
        Member(str(place), place, place // per_node if per_node else None, SLOW if place == slow else None)
        for place in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "per_node", "most", "among", "labels"),
    [
        (8, 0, 10, None, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        (8, 0, 4, None, ["0–1", "2–3", "4–5", "6–7"]),
        (5, 0, 3, None, ["0", "1–2", "3–4"]),
        (8, 2, 7, None, ["n0", "n1", "n2", "n3"]),
        (8, 4, 5, None, ["0–1", "2–3", "4–5", "6–7"]),
        (32, 8, 3, None, ["n0", "n1", "n2–3"]),
        (32, 8, 8, (8, 15), ["8", "9", "10", "11", "12", "13", "14", "15"]),
        (32, 8, 3, (8, 15), ["8–9", "10–12", "13–15"]),
        # There are fewer ranks than there were.
        (6, 0, 8, (8, 15), ["0", "1", "2", "3", "4", "5"]),
    ],
)
def test_more_ranks_than_lines_are_joined(
    count: int, per_node: int, most: int, among: tuple[int, int] | None, labels: list[str]
) -> None:
    heat = heat_of(members(count, per_node), np.zeros((count, 4)), most, among)
    assert [row.label for row in heat.rows] == labels
    assert heat.is_whole == (len(labels) == count)


def test_a_row_is_the_mean_or_its_culprit() -> None:
    values = np.array([[1.0, 1.0], [3.0, np.nan], [1.0, 2.0], [9.0, 8.0]])
    heat = heat_of(members(4, slow=3), values, 2)
    assert [row.values.tolist() for row in heat.rows] == [[2.0, 1.0], [9.0, 8.0]]
    assert [row.culprit and row.culprit.number for row in heat.rows] == [None, 3]


def test_levels_and_characters_of_a_scale() -> None:
    given = np.array([np.nan, -1.0, 0.0, 0.5, 1.0, 7.0, np.inf])
    assert levels(given, 0.0, 1.0).tolist() == [EMPTY, 0, 0, 4, 8, 8, BROKEN]
    heat = heat_of(members(1, slow=0), given[None], 1, format="{:.1f} s".format)
    title, row = heat_lines("step time", heat, (0.0, 1.0))
    assert plain(title) == f"step time  0.0 s {GLYPHS} ≥ 1.0 s"
    assert plain(row) == "      0▲ ..+@@✕"


def test_the_slow_rank_of_512_has_the_row_of_its_node() -> None:
    events = [*nodes.running(64, 512), h.steps(15, 117, 140, 8.8, pace=0.2)]
    state = fold(events)
    chart = build_chart(state, ChartOptions(STEP_TIME), columns=80, rows=64)
    assert chart.heat is not None
    assert (chart.form, chart.forms) == ("heat", ("band", "heat"))
    (culprit,) = [row for row in chart.heat.rows if row.culprit]
    assert (culprit.label, culprit.culprit and culprit.culprit.number) == ("n1", 15)
    cells = rasterize(chart, 40, 64, cursor=20)
    assert cells.inks[1].max() == HEAT + 8 > cells.inks[0].max() + 4
    assert "▲ 15" in legend(chart, STEP_TIME, None, dark=True).plain
    opened = build_chart(state, ChartOptions(STEP_TIME, among=(8, 15)), columns=80, rows=64).heat
    assert opened is not None
    assert [row.label for row in opened.rows][-1].startswith("15 ")


def test_ranks_of_a_lost_node_stand_out() -> None:
    chart = build_chart(fold(nodes.troubled()), ChartOptions(STEP_TIME), columns=80, rows=4)
    assert chart.heat is not None
    assert [str(row.condition or "") for row in chart.heat.rows] == ["", "", "▲ silent", "✖ lost"]
    assert legend(chart, STEP_TIME, None, dark=True).plain.endswith(" ✖ 24 y lost  ▲ 16 q silent")


def test_devices_have_a_map_a_figure() -> None:
    state = fold(devices.on_gpus(8, last={3: {"utilization_percent": 40.0}}))
    lines = [plain(one) for one in device_heats(state, gpu_views(state), 118)]
    assert [lines[place].split() for place in (0, 10)] == [
        ["utilization", "0", "%", GLYPHS, "100", "%", "memory", "0", "%", GLYPHS, "100", "%"],
        ["power", "0", "W", GLYPHS, "700", "W", "temperature", "0", "°C", GLYPHS, "87", "°C"],
    ]
    assert lines[4][:58].endswith("@" + 10 * "=")
    assert len(lines[4]) <= 118
    few = fold(devices.on_gpus(4))
    assert device_heats(few, gpu_views(few), 118) == []
    on_cpus = fold([*h.running(6), *h.samples(6, 9.0)])
    titles = plain(device_heats(on_cpus, [], 118)[0])
    assert titles.startswith("CPU, of one core  0 %")
    assert "memory  0 B" in titles


def test_a_value_at_the_cursor_keeps_within_the_chart() -> None:
    state = fold([*h.running(8), h.steps(3, 131, 131, 9.0, losses=[None])])
    for columns in (6, 14):
        chart = build_chart(state, ChartOptions(form="heat"), columns=2 * columns, rows=8)
        for cursor in range(columns):
            assert rasterize(chart, columns, 8, cursor).characters.shape == (8, columns)
        # It became lower, and is drawn anew.
        rasterize(chart, columns, 3, 2)


def test_without_colours_the_characters_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert all(len(set(heat_colors(level, dark=True))) == 1 for level in range(9))
    monkeypatch.setenv("NO_COLOR", "1")
    assert [heat_colors(level, dark=True)[0] for level in (0, 8)] == ["white", "black"]


def test_forms_and_scales() -> None:
    state = fold(devices.on_gpus(8, last={3: {"utilization_percent": 40.0}}))
    for form in ("band", "lines", "heat"):
        chart = build_chart(state, ChartOptions(form=form), **SIZE)
        assert (chart.form, chart.band is not None, len(chart.curves)) == (
            form,
            form == "band",
            1 if form == "band" else 8,
        )
    assert build_chart(state, ChartOptions(LOSS), **SIZE).form == "band", "it says whether the run learns"
    assert build_chart(fold(h.running(4)), ChartOptions(form="heat"), **SIZE).form == "lines"
    busy = build_chart(state, ChartOptions(UTILIZATION), **SIZE)
    assert busy.heat is not None
    assert busy.y_range == (0.0, 100.0)
    assert [row.label for row in busy.heat.rows][:2] == ["a 0", "b 1"]
    cursor = legend(busy, UTILIZATION, 2 * 35, dark=True).plain
    assert "40 % (d 3) to " in cursor
    shown = ["".join(map(chr, row)) for row in rasterize(busy, 40, 10, cursor=35).characters]
    assert [place for place, text in enumerate(shown) if "│40 %" in text] == [5]
    # What is alike is of one colour, nearly, not of all.
    alike = build_chart(state, ChartOptions(STEP_TIME), **SIZE)
    assert alike.y_range[0] <= 0.75 * alike.y_range[1]
