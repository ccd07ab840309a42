"""The axis of values leaves out the first, far higher ones, so that what changes later is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.contract.metrics import TEST_ACCURACY
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.chart import Chart, ChartOptions, build_chart
from tuiapp.view.chart_words import setting_words
from tuiapp.view.raster import rasterize

SIZE: dict[str, Any] = {"columns": 200, "rows": 20}
FALLING = [2.4 * 0.8**step + 0.02 for step in range(1000)]


def run(losses: Sequence[float], test_losses: Sequence[float] = ()) -> RunState:
    """A run that evaluates after equally many steps each time, with an accuracy of 1 - loss."""
    every = len(losses) // max(1, len(test_losses))
    evaluations = [
        evaluation_event(every * place, loss, 1 - loss, **h.at(2)) for place, loss in enumerate(test_losses, start=1)
    ]
    return fold([h.started(1), step_event(0, 1, losses, **h.at(1)), *evaluations])


def overfitted() -> RunState:
    """The loss falls from 2.4 within 3 % of the run; the test loss rises from 0.05 to 0.26 in its second half."""
    return run(FALLING, [0.7, *[0.05] * 10, *(0.05 + 0.021 * n for n in range(1, 11))])


def arrows(chart: Chart) -> tuple[int, int]:
    """How many arrows up are in the first row, and down in the last."""
    rows = ["".join(map(chr, row)) for row in rasterize(chart, 100, 20).characters]
    return rows[0].count("↑"), rows[-1].count("↓")


def test_a_late_rise_is_seen_and_what_is_left_out_is_named() -> None:
    chart = build_chart(overfitted(), ChartOptions(smoothing=0.6), **SIZE)
    assert chart.y_range == pytest.approx((0, 0.26), abs=0.03)
    assert arrows(chart) == (2, 0), "of the loss and of the test loss"
    words, _ = setting_words(chart, ChartOptions(), "clipped")
    assert words.startswith("starts at ")
    assert words.endswith(", above the chart")


@pytest.mark.parametrize("wanted", [{"full_y_range": True}, {"log": True}, {"window": (300.0, 300.0)}])
def test_all_values_on_request_on_a_logarithmic_axis_and_in_a_part_of_the_run(wanted: dict[str, object]) -> None:
    chart = build_chart(overfitted(), replace(ChartOptions(), **wanted), **SIZE)  # type: ignore[arg-type]
    top = 10 ** chart.y_range[1] if chart.log else chart.y_range[1]
    assert top > 2.3
    assert chart.clipped == (None, None)
    assert arrows(chart) == (0, 0)


def test_a_rise_from_below_has_an_arrow_down() -> None:
    chart = build_chart(
        run([0.5] * 1000, [0.9, *[0.02 + 0.001 * n for n in range(20)]]), ChartOptions(TEST_ACCURACY), **SIZE
    )
    assert chart.y_range[0] > 0.9
    assert arrows(chart) == (0, 1)
    assert setting_words(chart, ChartOptions(TEST_ACCURACY), "clipped") == [
        "starts at 10.0 %, below the chart",
        "0 shows all",
    ]
