"""A scaling study's rows, from journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.histories import MIB
from tests.kit.measured_runs import GROUP, recorded, recorded_script
from tuiapp.trainers.experiments.study import runs_of_group
from tuiapp.verbs.measured_studies import plain_chart
from tuiapp.verbs.scale import scaling_chart, scaling_rows
from tuiapp.view.measured import measure, unit_of


def test_a_row_has_medians_over_the_runs_that_completed(tmp_path: Path) -> None:
    for number, rate in enumerate((1000.0, 1100.0, 1500.0)):
        recorded(tmp_path, number, devices=1, rate=rate)
    for number, rate in enumerate((1900.0, 1650.0, 1800.0), 10):
        recorded(tmp_path, number, devices=2, rate=rate, waited=0.2)
    recorded(tmp_path, 20, devices=2, rate=9000.0, status="failed")
    recorded(tmp_path, 30, devices=4, rate=9000.0, status="stopped")
    one, two, four = scaling_rows([measure(run) for run in runs_of_group(tmp_path, GROUP)])
    assert one.throughput is not None
    assert (one.devices, one.counted, one.efficiency) == (1, 3, 1.0)
    assert one.throughput[2:] == (1100.0, 1000.0, 1500.0, 3)
    assert (two.devices, two.counted, len(two.runs)) == (2, 3, 4)
    assert two.throughput is not None
    assert two.throughput.half == pytest.approx(125 / 1800)
    assert two.speedup is not None
    assert two.speedup[2:] == pytest.approx((1800 / 1100, 1650 / 1100, 1900 / 1100, 3))
    assert two.efficiency == pytest.approx(1800 / 2200)
    assert one.waiting is None
    assert two.waiting == pytest.approx(0.2)
    assert (one.memory_bytes, two.memory_bytes) == (100 * MIB, 201 * MIB)
    assert (four.counted, four.throughput, four.speedup, four.efficiency, four.ideal) == (0, None, None, None, 4.0)
    assert two.shown.throughput == 1800.0
    assert measure(runs_of_group(tmp_path, GROUP)[0]).first_step_s == pytest.approx(3.0)


def test_without_the_fewest_devices_there_is_no_speed_up(tmp_path: Path) -> None:
    recorded(tmp_path, 1, devices=1, status="failed")
    recorded(tmp_path, 2, devices=2)
    one, two = scaling_rows([measure(run) for run in runs_of_group(tmp_path, GROUP)])
    assert (one.speedup, two.speedup, two.throughput and two.throughput.median) == (None, None, 1000.0)


@pytest.mark.parametrize(("weak", "speedup"), [(False, 0.8), (True, 1.6)])
def test_a_script_that_tells_no_examples_has_steps_without_its_beginning(
    tmp_path: Path, weak: bool, speedup: float
) -> None:
    recorded_script(tmp_path, 1, 1, step_s=0.4)
    recorded_script(tmp_path, 2, 2, step_s=0.5)
    runs = [measure(run) for run in runs_of_group(tmp_path, GROUP)]
    assert unit_of(runs) == "steps/s"
    assert [run.throughput for run in runs] == pytest.approx([2.5, 2.0])
    two = scaling_rows(runs, weak=weak)[1]
    assert two.speedup is not None
    assert two.speedup.median == pytest.approx(speedup), "a step does twice the work if the batch grows"
    assert two.batch is None


def test_the_curve_is_below_the_ideal_line(tmp_path: Path) -> None:
    for number, (devices, rate) in enumerate({1: 1000.0, 2: 1400.0, 4: 2000.0}.items()):
        recorded(tmp_path, number, devices=devices, rate=rate)
    rows = scaling_rows([measure(run) for run in runs_of_group(tmp_path, GROUP)])
    chart = scaling_chart(rows, columns=80, lines=10)
    assert chart is not None
    last = 80 - 1 - 12
    assert [float(chart.curves[0].middle[place]) for place in (0, last)] == [0.0, 1.0]
    assert float(chart.raw[0].middle[last]) == 2.0
    lines = plain_chart(chart, 40, 10, "devices")
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line] == ["4×", "2×", "1×"]
    assert lines[-1].split() == ["1", "2", "4", "devices"]
    assert scaling_chart(rows[:1], columns=80, lines=10) is None
