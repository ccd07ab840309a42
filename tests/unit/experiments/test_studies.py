"""What is made of a study's runs: scaling, shoot-outs, the pace of runs, and how much each key matters."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from tests.kit.histories import MIB
from tests.kit.measured_runs import GROUP, STEPS, recorded, recorded_script
from tests.kit.runs_app import info
from tuiapp.library.queue_words import cost_words
from tuiapp.trainers.experiments.importance import LEAST_TRIALS, importances
from tuiapp.trainers.experiments.pace import Cost, cost, kind
from tuiapp.trainers.experiments.study import runs_of_group
from tuiapp.verbs.measured_studies import plain_chart
from tuiapp.verbs.scale import scaling_chart, scaling_rows
from tuiapp.verbs.shootout import shootout_rows
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


def test_backends_are_compared_with_the_first(tmp_path: Path) -> None:
    falls = [2.0 - step / STEPS for step in range(STEPS)]
    other = [*falls]
    other[7] += 0.25
    other[20] -= 0.125
    recorded(tmp_path, 1, backend="jax-pmap", losses=other, rate=500.0)
    recorded(tmp_path, 2, backend="torch-ddp", losses=falls, rate=900.0)
    recorded(tmp_path, 3, backend="torch-ddp", losses=falls, rate=1100.0)
    recorded(tmp_path, 4, backend="keras-jax", status="failed")
    runs = [measure(run) for run in runs_of_group(tmp_path, GROUP)]
    torch, jax, keras = shootout_rows(runs, ["torch-ddp", "jax-pmap", "mxnet-gluon"])
    assert [torch.backend, jax.backend, keras.backend] == ["torch-ddp", "jax-pmap", "keras-jax"]
    assert torch.throughput is not None
    assert torch.throughput[2:] == (1000.0, 900.0, 1100.0, 2)
    assert torch.first_step_s is not None
    assert torch.first_step_s.median == pytest.approx(3.0)
    assert (torch.loss, torch.test_loss, torch.accuracy, torch.difference) == (0.5, 0.6, 0.9, None)
    assert jax.difference == pytest.approx(0.25)
    assert (keras.throughput, keras.loss, keras.difference, keras.shown.is_whole) == (None, None, None, False)


def test_two_ranks_have_the_mean_of_their_losses(tmp_path: Path) -> None:
    recorded(tmp_path, 1, backend="torch-ddp", devices=2, losses=[1.0] * STEPS)
    recorded(tmp_path, 2, backend="jax-pmap", devices=2, losses=[1.5] * STEPS)
    _, jax = shootout_rows([measure(run) for run in runs_of_group(tmp_path, GROUP)], ["torch-ddp"])
    assert jax.difference == pytest.approx(0.5)


def test_by_the_newest_of_a_kind() -> None:
    earlier = info(1, devices=4, platform="cuda")
    assert earlier.config is not None
    known = {kind(earlier.config): earlier}
    # It took 17.5 s for 290 steps.
    expected = cost(7, 2, earlier.config, 580, known)
    assert expected == pytest.approx((4 * 35.0, 7 * 4 * 35 / 3600))
    words = cost_words(expected)
    assert words.startswith("about 2m 20s, 0.27 GPU hours, until ")
    assert cost_words(expected, at_most=True).startswith("at most 2m 20s")
    on_cpu = msgspec.structs.replace(earlier.config, platform="cpu")
    assert cost(1, 2, on_cpu, 580, known) is None, "a CPU is another kind"
    known[kind(on_cpu)] = earlier
    assert cost(1, 2, on_cpu, 0, known, ["seed"]) == Cost(17.5, 0.0), (
        "of unknown steps it is as long as the earlier one"
    )
    assert cost(1, 2, on_cpu, 0, known, ["seed", "epochs"]) is None, "they take differently long"
    other = msgspec.structs.replace(earlier.config, model="mlp")
    assert cost_words(cost(7, 2, other, 580, known)) == "", "nothing is known of another kind"


pytest.importorskip("optuna")


def trials(count: int) -> list[tuple[dict[str, object], float]]:
    """What they come to depends on the rate by factors, and hardly on the rest."""
    found = list[tuple[dict[str, object], float]]()
    for number in range(count):
        rate, decay = 10.0 ** (-4 + number % 6 * 0.5), number * 7 % 5 * 0.1
        values: dict[str, object] = {"rate": rate, "decay": decay, "kind": "ab"[number % 2], "same": 1}
        found.append((values, -abs(math.log10(rate) + 2.5) - 0.01 * decay))
    return found


def test_what_decides_has_the_largest_share() -> None:
    found = importances(trials(30), True, {"rate"})
    assert set(found) == {"rate", "decay", "kind"}, "not what is the same in all"
    assert found["rate"] > 0.7
    assert math.fsum(found.values()) == pytest.approx(1.0)
    worst = importances([(values, -value) for values, value in trials(30)], False, {"rate"})
    assert worst == pytest.approx(found), "less is better of what was turned"


def test_nothing_is_said_of_few_of_one_key_and_of_what_is_all_alike() -> None:
    assert importances(trials(LEAST_TRIALS - 1), True, ()) == {}
    assert importances([({"rate": values["rate"]}, value) for values, value in trials(30)], True, ()) == {}
    assert importances([(values, 1.0) for values, _ in trials(30)], True, ()) == {}
