"""The axes of charts: the range of values, and the numbers beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import log10
from typing import Any

import pytest

from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import evaluation_event, step_event
from tuiapp.trainers.contract.metrics import TEST_ACCURACY
from tuiapp.trainers.state.known_metrics import KNOWN
from tuiapp.trainers.state.run_state import RunState
from tuiapp.view.axes import LABEL_CELLS, log_ticks, value_range, value_ticks
from tuiapp.view.chart import Chart, ChartOptions, build_chart, frame
from tuiapp.view.chart_words import setting_words
from tuiapp.view.raster import rasterize

UNITS = {metric.label: metric.unit for metric in KNOWN.values()}
LINEAR: list[tuple[str, float, float, int, str]] = [
    ("loss", 0, 1.5, 3, "0.0 0.5 1.0 1.5"),
    ("loss", 0, 2.4, 3, "0 1 2"),
    ("loss", 0.98, 1.02, 4, "0.98 0.99 1.00 1.01 1.02"),
    ("loss", -0.2, 0.2, 4, "-0.2 -0.1 0.0 0.1 0.2"),
    ("accuracy", 0.96, 1, 4, "96 % 97 % 98 % 99 % 100 %"),
    ("accuracy", 0.98, 1, 4, "98.0 % 98.5 % 99.0 % 99.5 % 100.0 %"),
    ("accuracy", 0.9995, 1, 5, "99.95% 99.96% 99.97% 99.98% 99.99% 100.00%"),
    ("step time", 0, 1.2, 3, "0.0 s 0.5 s 1.0 s"),
    ("step time", 0, 0.06, 3, "0 ms 20 ms 40 ms 60 ms"),
    ("step time", 0, 0.0004, 4, "0 µs 100 µs 200 µs 300 µs 400 µs"),
    ("step time", 0, 12_000, 3, "0s 5,000s 10,000s"),
    ("utilization", 0, 100, 2, "0 % 50 % 100 %"),
    ("examples/s", 0, 1200, 3, "0 500 1,000"),
    ("examples/s", 0, 2.4e6, 3, "0 1e6 2e6"),
    ("learning rate", 0, 0.001, 2, "0.0000 0.0005 0.0010"),
    ("learning rate", 0, 0.00015, 3, "0 0.5e-4 1.0e-4 1.5e-4"),
    ("gradient norm", -1e30, 1e30, 2, "-1e30 0 1e30"),
]


@pytest.mark.parametrize(("quantity", "low", "high", "count", "labels"), LINEAR)
def test_labels_of_a_linear_axis(quantity: str, low: float, high: float, count: int, labels: str) -> None:
    told = [label for _, label in value_ticks(low, high, count, UNITS[quantity])]
    assert " ".join(told) == labels


PARTS = re.compile(r"(-?[\d,]+)(\.\d+)?(e-?\d+)?( ?(?:%|s|ms|µs))?")


"""Whole number, decimals, power of ten, unit."""


SPANS = [factor * 10.0**power for factor in (1, 1.3, 2.5, 4.7, 8) for power in range(-6, 8)]


@pytest.mark.parametrize("quantity", UNITS)
def test_an_axis_has_one_unit_and_one_number_of_decimals(quantity: str) -> None:
    """Whatever it shows: labels that all differ, and none that is cut."""
    for span, below, count in product(SPANS, (0, 0.3, 1, 10), (2, 5, 12)):
        ticks = value_ticks(*value_range(below * span, (below + 1) * span), count, UNITS[quantity])
        labels = [label for _, label in ticks]
        assert all(0 < len(label) <= LABEL_CELLS for label in labels), labels
        assert len(set(labels)) == len(labels), labels
        parts = [match.groups("") for label in labels if (match := PARTS.fullmatch(label))]
        assert len(parts) == len(labels)
        assert len({unit for *_, unit in parts}) == 1, labels
        # Beside powers of ten 0 is 0.
        powers = any(power for _, _, power, _ in parts)
        forms = {
            (len(decimals), power) for whole, decimals, power, _ in parts if not (powers and whole == "0" and not power)
        }
        assert len(forms) == 1, labels


@pytest.mark.parametrize("low", [-1e30, -1e6, -1.0, 0.0, 1e-300, 1e-320, 0.5, 1234567.0, 1e30])
@pytest.mark.parametrize("span", [0.0, 5e-324, 1e-12, 1e-3, 1.0, 1e30])
def test_whatever_the_values_the_labels_fit(low: float, span: float) -> None:
    low, high = value_range(low, low + span)
    assert all(len(label) <= LABEL_CELLS for _, label in value_ticks(low, high, 5, "s"))


LOGARITHMIC: list[tuple[str, float, float, int, str]] = [
    ("loss", 0.05, 2.4, 6, "0.05 0.1 0.2 0.5 1 2"),
    ("loss", 0.001, 300, 6, "0.001 0.01 0.1 1 10 100"),
    ("learning rate", 1e-6, 0.1, 6, "1e-6 1e-5 1e-4 1e-3 1e-2 1e-1"),
    ("learning rate", 1.5e-4, 0.03, 8, "0.0002 0.0005 0.001 0.002 0.005 0.01 0.02"),
    ("step time", 0.0002, 2, 6, "0.001 s 0.01 s 0.1 s 1 s"),
    ("step time", 0.0002, 0.2, 6, "1 ms 10 ms 100 ms"),
    ("step time", 1e-6, 2, 6, "1e-6 s 1e-4 s 1e-2 s 1e0 s"),
    ("accuracy", 0.1, 1, 6, "10 % 20 % 50 % 100 %"),
    # Where less than two of 1, 2 and 5 are in sight.
    ("loss", 1.05, 1.4, 4, "1.1 1.2 1.3 1.4"),
    ("loss", 0.9, 1.1, 4, "0.90 0.95 1.00 1.05 1.10"),
]


@pytest.mark.parametrize(("quantity", "low", "high", "count", "labels"), LOGARITHMIC)
def test_labels_of_a_logarithmic_axis(quantity: str, low: float, high: float, count: int, labels: str) -> None:
    ticks = log_ticks(log10(low), log10(high), count, UNITS[quantity])
    assert " ".join(label for _, label in ticks) == labels
    assert all(before < after for (before, _), (after, _) in pairwise(ticks))


def test_a_number_without_room_is_left_out_with_its_tick() -> None:
    chart = Chart(x_range=(0.0, 10.0), y_range=(0.0, 4.0), x_ticks=[(0.0, "0"), (2.0, "2,000"), (3.0, "3,000")])
    chart.y_ticks = [(0.0, "0"), (4.0, "4.0")]
    assert frame(chart, 21, 3) == [
        f"    4.0┤{'':21}",
        f"       │{'':21}",
        f"      0┤{'':21}",
        f"       └┬───┬{'─' * 16}",
        f"        0 2,000{'':14}",
    ]


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
