"""What a chart draws: which curves, where, with which numbers beside them; and its dots."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.kit import histories as h
from tests.kit import interrupted
from tests.kit import node_histories as nodes
from tests.kit.folding import fold
from tests.kit.reported import evaluation_event, step_event
from tests.kit.runs_app import info
from tuiapp.feeds.compare_feed import Compared, CompareFeed
from tuiapp.screens.chart_sources import ComparisonSource
from tuiapp.trainers.contract.events import Facts, Metrics
from tuiapp.trainers.contract.metrics import LEARNING_RATE, RATE, TEST_ACCURACY, TEST_LOSS
from tuiapp.trainers.state.curves import Curves
from tuiapp.trainers.state.known_metrics import UTILIZATION, metric
from tuiapp.view.chart import BAND, Chart, ChartOptions, Curve, build_chart, build_comparison
from tuiapp.view.raster import CURSOR, EVALUATION, GAP, NONE, RAW, rasterize
from tuiapp.widgets.chart_panel import legend

SIZE = {"columns": 200, "rows": 20}


def straight(values: list[float], breaks: list[float] | None = None) -> Chart:
    """A chart of one curve from 0 to 1."""
    drawn = np.array(values)
    curve = Curve("0", 0, drawn, drawn, drawn, np.array(breaks or [0.0] * len(values)))
    return Chart(curves=[curve], x_range=(0, len(values) - 1), y_range=(0.0, 1.0))


def text(chart: Chart, columns: int, rows: int) -> list[str]:
    return ["".join(map(chr, row)) for row in rasterize(chart, columns, rows).characters]


def test_a_line_per_rank_up_to_four() -> None:
    chart = build_chart(fold(h.running(4)), ChartOptions(), **SIZE)
    assert [curve.label for curve in chart.curves] == ["0", "1", "2", "3"]
    assert chart.band is None
    chosen = build_chart(fold(h.running(4)), ChartOptions(), rank=2, **SIZE)
    assert [(curve.label, curve.color) for curve in chosen.curves] == [("2", 2)]


@pytest.mark.parametrize(
    ("name", "by", "extent"),
    [
        ("val/acc", "images", (64.0, 320.0)),
        ("val/top1", "val/acc", (10.0, 50.0)),
        ("loss", "images", (64.0, 320.0)),
        ("images", "", (10.0, 50.0)),
    ],
)
def test_a_metric_is_drawn_by_that_which_its_script_has_named(name: str, by: str, extent: tuple[float, float]) -> None:
    """As long as that never falls; its own definition goes before those of patterns."""
    reported = [
        Metrics(
            rank=0, first_step=step, values={"loss": [1.0], "val/acc": [-step], "val/top1": [2.0], "images": [images]}
        )
        for step, images in ((10, 64.0), (20, 128.0), (50, 320.0))
    ]
    said = [Facts(step_metrics={"val/top1": "val/acc"}), Facts(step_metrics={"val/*": "loss"})]
    state = fold([h.started(1), *said, Facts(step_metrics={"val/*": "images", "*s": "images"}), *reported])
    assert state.facts.step_metric_of(name) == by
    chart = build_chart(state, ChartOptions(name), **SIZE)
    assert chart.extent == extent
    assert build_chart(state, ChartOptions(name, axis="time"), **SIZE).axis == "time"


def test_runs_are_compared_by_what_all_their_scripts_have_named() -> None:
    def run(by: str, images: float) -> Compared:
        found, said = Compared(info(1)), [Facts(step_metrics={"val/acc": by})]
        values: dict[str, list[float | None]] = {"val/acc": [0.1, 0.2], "images": [images, 2 * images]}
        found.curves.fold([h.started(1), Metrics(rank=0, first_step=1, values=values)])
        found.note(said)
        return found

    def extent(*runs: Compared, axis: str = "step") -> tuple[str, tuple[float, float]]:
        feed = CompareFeed()
        feed.runs = runs
        chart = ComparisonSource(feed).build(ChartOptions("val/acc", axis), **SIZE)
        return chart.axis, chart.extent

    assert extent(run("images", 64), run("images", 100)) == ("images", (64, 200))
    assert extent(run("images", 64), run("", 100)) == ("step", (1, 2))
    assert extent(run("images", 64), run("images", 100), axis="time")[0] == "time"


def test_beyond_four_the_mean_with_a_band_and_any_rank_over_it() -> None:
    state = fold(h.running(8))
    chart = build_chart(state, ChartOptions(), **SIZE)
    assert [curve.label for curve in chart.curves] == ["mean"]
    assert chart.ranks == 8
    assert chart.band is not None
    known = ~np.isnan(chart.band.low)
    assert (chart.band.low[known] <= chart.curves[0].middle[known]).all()
    assert (chart.band.high[known] >= chart.curves[0].middle[known]).all()
    chosen = build_chart(state, ChartOptions(), rank=6, **SIZE)
    assert [(curve.label, curve.color) for curve in chosen.curves] == [("6", 6)]
    assert chosen.band is not None


def test_a_gpu_of_several_nodes_is_named_with_its_node() -> None:
    chart = build_chart(fold(nodes.running(2, 4)), ChartOptions(UTILIZATION), **SIZE)
    assert [curve.label for curve in chart.curves] == ["n0 GPU 0", "n0 GPU 1", "n1 GPU 0", "n1 GPU 1"]
    chart = build_chart(fold(h.running(2, gpus=True)), ChartOptions(UTILIZATION), **SIZE)
    assert [curve.label for curve in chart.curves] == ["GPU 0", "GPU 1"]
    many = legend(
        build_chart(fold(nodes.running(2, 16)), ChartOptions(UTILIZATION, form="band"), **SIZE),
        UTILIZATION,
        None,
        dark=True,
    )
    assert "mean of 16 GPUs" in many.plain


def test_the_axis_of_a_live_run_stands_while_the_curve_grows() -> None:
    ranges = {build_chart(fold(h.running(last_step=last)), ChartOptions(), **SIZE).x_range for last in range(121, 140)}
    assert ranges == {(1.0, 140.0)}
    assert build_chart(fold(h.completed()), ChartOptions(), **SIZE).x_range == (1.0, 290.0)


def test_a_stall_is_a_gap_in_the_speed() -> None:
    """Of evaluations, which take less, it is none."""
    events = [h.started(1), h.rank_started(0), h.steps(0, 1, 60, 5.0), h.steps(0, 61, 120, 8.5)]
    events += [h.steps(0, step, step + 2, 60.0 + step / 20) for step in range(121, 180, 3)]
    chart = build_chart(fold(events), ChartOptions(metric=RATE, axis="time"), **SIZE)
    stalled = np.flatnonzero(chart.curves[0].breaks)
    assert np.isnan(chart.curves[0].middle[stalled]).all()
    assert [chart.x_at(column) for column in stalled[[0, -1]].tolist()] == pytest.approx([8.5, 66.05], abs=0.8)
    assert not chart.gaps
    assert not build_chart(fold(events), ChartOptions(axis="time"), **SIZE).curves[0].breaks.any()


def test_an_idle_gpu_is_at_the_foot_of_all_per_cent() -> None:
    changes = {"utilization_percent": 0.0}
    state = fold(
        [*h.running(1, gpus=True)[:4], *(msgspec.structs.replace(h.device_sample(0, t), **changes) for t in (1, 2, 3))]
    )
    assert build_chart(state, ChartOptions(metric=UTILIZATION), **SIZE).y_range == (0, 100)
    never = fold([h.started(1), *(evaluation_event(n, 2.3, 0.0) for n in (1, 2))])
    assert build_chart(never, ChartOptions(metric=TEST_ACCURACY), **SIZE).y_range[0] == 0


def test_the_time_between_two_attempts_is_left_out() -> None:
    state = fold([*interrupted.stopped(), *interrupted.resumed(seconds=90_000)])
    left, right = build_chart(state, ChartOptions(axis="time"), **SIZE).extent
    assert right - left < 10


def test_log_scale_leaves_out_what_it_cannot_show() -> None:
    state = fold([h.started(1), h.steps(0, 1, 4, 1.0, losses=[10.0, 0.0, -1.0, 1000.0])])
    (curve,) = build_chart(state, ChartOptions(log=True), columns=8, rows=10).curves
    assert curve.middle[~np.isnan(curve.middle)].tolist() == [1.0, 3.0]


def test_values_that_are_not_finite_are_marked() -> None:
    chart = build_chart(fold(interrupted.with_nan()), ChartOptions(smoothing=0.6), columns=200, rows=20)
    assert chart.gaps
    cells = rasterize(chart, 100, 20)
    assert (cells.inks[0] == GAP).sum() >= 1
    assert np.isfinite(chart.y_range).all()


def test_every_metric_that_was_told_can_be_drawn() -> None:
    state = fold(h.running(2, gpus=True))
    assert [metric(name).label for name in state.metrics] == [
        "loss", "accuracy", "test loss", "examples/s", "step time", "learning rate", "utilization", "examples",
        "evaluation time", "test examples",
    ]  # fmt: skip
    for name in state.metrics:
        chart = build_chart(state, ChartOptions(metric=name), **SIZE)
        assert chart.curves, name
        assert any(label.strip() for _, label in chart.y_ticks), name
    rates = build_chart(state, ChartOptions(metric=RATE), **SIZE).curves[0].middle
    assert rates[~np.isnan(rates)] == pytest.approx(24 / 0.05)


def test_the_cursor_reads_values() -> None:
    chart = build_chart(fold(h.completed()), ChartOptions(log=True), columns=290, rows=20)
    values = chart.read(99)
    assert [(label, color) for label, color, _ in values] == [("0", 0), ("1", 1)]
    assert values[0][2] == pytest.approx(h.loss_at(100, 0))
    assert chart.x_at(99) == pytest.approx(100)


@pytest.mark.parametrize(
    ("column", "value"), [(0, None), (3, None), (4, 1.0), (8, 1.0), (11, 2.0), (14, None), (17, 3.0), (20, None)]
)
def test_between_two_values_the_earlier_one_is_read(column: int, value: float | None) -> None:
    """Not before the first one nor after the last, and not where the line is broken."""
    middle, breaks = np.full(22, np.nan), np.zeros(22)
    middle[[5, 12, 18]], breaks[15] = [1.0, 2.0, 3.0], 1
    chart = Chart(curves=[Curve("0", 0, middle, middle, middle, breaks)])
    assert chart.read(column) == [("0", 0, value)]


def test_a_falling_line_in_dots() -> None:
    assert text(straight([1.0, 2 / 3, 1 / 3, 0.0]), 2, 1) == ["⠑⢄"]


def test_a_jump_is_joined() -> None:
    drawn = text(straight([1.0, 0.0]), 1, 2)
    assert drawn == ["⡇", "⢸"]


def test_a_line_through_columns_without_values() -> None:
    nan = float("nan")
    assert text(straight([0.0, nan, nan, nan, nan, 0.0]), 3, 1) == ["⣀⣀⣀"]


def test_a_gap_breaks_the_line() -> None:
    nan = float("nan")
    broken = straight([0.0, 0.0, nan, nan, 0.0, 0.0], [0, 0, 1, 1, 0, 0])
    assert text(broken, 3, 1) == ["⣀ ⣀"]


def test_marks_and_cursor() -> None:
    chart = replace(straight([0.0] * 20), evaluations=[(18.0, 1.0)], gaps=[4])
    cells = rasterize(chart, 10, 5, cursor=3)
    assert (chr(cells.characters[0, 9]), cells.inks[0, 9]) == ("⠋", EVALUATION)
    assert (chr(cells.characters[0, 2]), cells.inks[0, 2]) == ("✕", GAP)
    assert cells.inks[:, 3].tolist() == [CURSOR] * 4 + [0]


def test_evaluations_are_a_line_with_marks_at_the_dots_of_their_values() -> None:
    evaluations = [evaluation_event(29 * epoch, 3 - epoch / 10, 0.5, **h.at(1)) for epoch in range(1, 11)]
    state = fold([h.started(1), step_event(0, 1, [1.0] * 290, **h.at(1)), *evaluations])
    chart = build_chart(state, ChartOptions(), columns=120, rows=20)
    line = chart.evaluation_line
    assert line is not None
    assert np.count_nonzero(~np.isnan(line.middle)) == len(chart.evaluations) == 10
    inks = rasterize(chart, 60, 20).inks
    assert (inks[:, 6:-3] == EVALUATION).any(axis=0).all(), "from the first to the last, in every column"
    assert build_chart(state, ChartOptions(TEST_LOSS), **SIZE).evaluation_line is None, "that is the curve"
    # In one row of cells, a dot apart.
    marked = [
        "".join(text(replace(straight([0.0] * 20), evaluations=[(10.0, value)]), 10, 5)) for value in (0.50, 0.56, 0.62)
    ]
    assert len(set(marked)) == 3


def test_lines_that_coincide_take_turns() -> None:
    """Every one is seen, the line of the evaluations, too; where they part each has its own cells."""
    nothing = np.zeros(40)
    curves = [Curve(str(rank), rank, each, each, each, nothing) for rank in range(3) for each in [np.full(40, 0.5)]]
    curves[2].middle[20:] = curves[2].low[20:] = curves[2].high[20:] = 0.0
    chart = Chart(curves=curves, evaluation_line=curves[1], x_range=(0, 39))
    inks = rasterize(chart, 20, 5).inks
    assert set(inks[2, :9].tolist()) == {0, 1, 2, EVALUATION}
    assert set(inks[2, 10:].tolist()) == {0, 1, EVALUATION}
    assert set(inks[4, 10:19].tolist()) == {2}


def test_the_curve_before_smoothing_lies_dotted_under_the_smoothed_one() -> None:
    state = fold([h.started(1), step_event(0, 1, [0.0, 1.0] * 20, **h.at(1))])
    assert build_chart(state, ChartOptions(), columns=40, rows=10).raw == []
    chart = build_chart(state, ChartOptions(smoothing=0.9), columns=40, rows=10)
    (raw,) = chart.raw
    assert raw.middle.tolist() == [0.0, 1.0] * 20
    assert chart.y_range == (0.0, 1.0), "all of it"
    cells = rasterize(chart, 20, 10)
    assert set(cells.inks.ravel().tolist()) == {RAW, 0, NONE}
    assert set(map(chr, cells.characters[cells.inks == RAW].tolist())) <= {"⡇", "⠇", "⡆", "⠆"}
    line = rasterize(replace(chart, raw=[]), 20, 10).characters
    assert (cells.characters[cells.inks == 0] == line[cells.inks == 0]).all(), "the line's cells are its own"


def test_the_band_lies_under_the_mean() -> None:
    low, middle, high = (np.full(40, value) for value in (0.0, 0.5, 1.0))
    nothing = np.zeros(40)
    band = Curve("band", BAND, middle, low, high, nothing)
    chart = Chart(curves=[Curve("mean", 0, middle, middle, middle, nothing)], band=band, x_range=(0, 39))
    inks = rasterize(chart, 20, 5).inks
    assert set(inks[2].tolist()) == {0}
    assert set(inks[0].tolist()) | set(inks[4].tolist()) == {BAND}


def test_lines_have_their_names_at_their_ends() -> None:
    drawn = np.full(20, 0.5)
    drawn[12:] = np.nan
    curves = [Curve(str(rank), rank, drawn, drawn, drawn, np.zeros(20)) for rank in range(3)]
    cells = rasterize(Chart(curves=curves, x_range=(0, 19)), 10, 5)
    assert "".join(map(chr, cells.characters[2, 6:9])) == "012"
    assert cells.inks[2, 6:9].tolist() == [0, 1, 2]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("rows", [7, 12, 29])
def test_a_constant_that_is_rounded_to_float32_at_times_is_a_straight_line(rows: int, log: bool) -> None:
    rates = [float(np.float32(3e-4)) if step % 7 else 3e-4 for step in range(400)]
    state = fold([h.started(1), step_event(0, 1, [1.0] * 400, rates=rates, **h.at(1))])
    chart = build_chart(state, ChartOptions(LEARNING_RATE, smoothing=0.6, log=log), columns=120, rows=rows)
    assert sum(bool(row.strip()) for row in text(chart, 60, rows)) == 1


def test_runs_of_the_same_place_are_a_mean_and_a_band() -> None:
    runs = []
    for place, values in ((0, [1.0, 2.0, 3.0]), (0, [3.0, 4.0, 5.0]), (1, [9.0, 9.0, 9.0])):
        curves = Curves(by_rank=False)
        curves.fold([h.started(1), Metrics(rank=0, first_step=1, values={"ppl": [*values]}, **h.at(2))])
        runs.append(("ab"[place], place, curves))
    chart = build_comparison(runs, ChartOptions("ppl", full_y_range=True), columns=3, rows=8)
    found = [(curve.label, curve.color, curve.middle.tolist()) for curve in chart.curves]
    assert found == [("a", 0, [2.0, 3.0, 4.0]), ("b", 1, [9.0, 9.0, 9.0])]
    (band,) = chart.bands
    assert (band.color, band.low.tolist(), band.high.tolist()) == (0, [1.0, 2.0, 3.0], [3.0, 4.0, 5.0])
    assert chart.y_range[0] <= 1.0
    assert (rasterize(chart, 40, 8).inks == RAW).any()
