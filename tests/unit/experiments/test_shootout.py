"""A shoot-out's rows, from journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.measured_runs import GROUP, STEPS, recorded
from tuiapp.trainers.experiments.study import runs_of_group
from tuiapp.verbs.shootout import shootout_rows
from tuiapp.view.measured import measure


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
