"""What is found in a script's output, and how it is packed."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script_syntax import compile_pattern
from tuiapp.trainers.contract.events import Alert, LogLine, Metrics
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.run.script_metrics import MatchedLines, Row, RowBatch, ScriptMetrics


def match(pattern: str, *texts: str) -> list[tuple[int, dict[str, float]]]:
    return [(row.step, dict(row.values)) for row in MatchedLines(compile_pattern(pattern)).match(texts)]


@pytest.mark.parametrize(
    ("pattern", "texts", "rows"),
    [
        (
            r"step (?P<step>\d+) loss (?P<loss>\S+)",
            ["step 10 loss 0.5", "hello", "step 20 loss 2.5e-1"],
            [(10, {"loss": 0.5}), (20, {"loss": 0.25})],
        ),
        (r"loss (?P<loss>\S+)", ["loss 3", "x", "loss 2"], [(1, {"loss": 3.0}), (2, {"loss": 2.0})]),
        (
            r"step (?P<step>\d+)|loss=(?P<loss>\S+)|acc=(?P<test__accuracy>\S+)",
            ["step 4 loss=1 acc=0.5", "acc=0.75"],
            [(4, {"loss": 1.0, "test/accuracy": 0.5}), (4, {"test/accuracy": 0.75})],
        ),
        # Prints that are joined: each says a loss.
        (
            r"loss (?P<loss>\S+)",
            ["loss 2.5 Epoch 2/3 loss 1.5", "loss 1.99Epoch 3/3 loss 1"],
            [(1, {"loss": 2.5}), (2, {"loss": 1.5}), (3, {"loss": 1.0})],
        ),
        (
            r"step (?P<step>\d+)|loss=(?P<loss>\S+)|acc=(?P<acc>\S+)",
            ["step 4 loss=1 acc=0.5 step 5 loss=2 acc=0.75 loss=3"],
            [(4, {"loss": 1.0, "acc": 0.5}), (5, {"loss": 2.0, "acc": 0.75}), (5, {"loss": 3.0})],
        ),
        # PyTorch's MNIST example: the batch's number begins anew in every epoch.
        (
            r"\[(?P<step>\d+)/\d+ .*Loss: (?P<loss>\S+)",
            [f"Train Epoch: {epoch} [{step}/100 (1%)]\tLoss: 1.0" for epoch in (1, 2) for step in (0, 50)],
            [(0, {"loss": 1.0}), (50, {"loss": 1.0}), (51, {"loss": 1.0}), (101, {"loss": 1.0})],
        ),
        # torchtitan's log: a colour for each value, which the dashboard's log shows without them.
        (
            r"step: +(?P<step>\d+) +loss: +(?P<loss>\S+)",
            ["\x1b[31mstep:  2  \x1b[32mloss:  8.1250  \x1b[39m", "\x1b[31mstep:  4\x1b[0m  loss:  7.5\x1b[0m"],
            [(2, {"loss": 8.125}), (4, {"loss": 7.5})],
        ),
        # Keras's progress bar: bold, a coloured bar, and backspaces after the last value.
        (
            r"(?P<step>\d+)/\d+ .*/step - mse: (?P<mse>\S+)",
            ["\x1b[1m12/50\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━\x1b[0m \x1b[1m1s\x1b[0m 26ms/step - mse: 0.75\b\b\b\b"],
            [(12, {"mse": 0.75})],
        ),
        (r"loss (?P<loss>\S+)", ["loss many", "loss 1,5"], []),
        # What no event can hold says nothing of training, and what follows it goes on.
        (
            r"step (?P<step>\S+) loss (?P<loss>\S+)",
            [f"step {step} loss 1" for step in ("1", "9000000000", "2", "1e300", "inf", f"{2**53}", "3")],
            [(1, {"loss": 1.0}), (2, {"loss": 1.0}), (3, {"loss": 1.0})],
        ),
        (r"step (?P<step>\S+) loss (?P<loss>\S+)", [f"step {2**53} loss 1"], [(2**53, {"loss": 1.0})]),
        (r"step (?P<step>\S+) loss (?P<loss>\S+)", ["step x loss 1", "step -1 loss 1"], [(0, {"loss": 1.0})] * 2),
    ],
)
def test_lines_that_match(pattern: str, texts: list[str], rows: list[tuple[int, dict[str, float]]]) -> None:
    assert match(pattern, *texts) == rows


def test_values_that_are_no_numbers_are_counted_and_said() -> None:
    metrics = ScriptMetrics(
        RunConfig(backend="script", script="train.py", output_pattern=r"loss (?P<loss>\S*)"), RunDir(Path())
    )
    lines = MatchedLines(compile_pattern(r"loss (?P<loss>\S*)"))
    metrics._on_texts(0, lines, ["loss 1.99Epoch 2/3 loss 1.5", "loss ", "loss many"])
    assert [event.text for event in metrics.take(monotonic()) if isinstance(event, Alert)] == [
        "output_pattern found '1.99Epoch' for loss, which is no number: such values are not recorded"
    ]
    metrics._on_texts(0, lines, ["loss none"])
    assert [event.text for event in metrics.finish() if isinstance(event, LogLine)] == [
        "output_pattern found 3 values that are no numbers: not recorded"
    ]


def test_rows_are_packed_as_far_as_they_go_together() -> None:
    batch = RowBatch(3)
    for step in (1, 2, 3, 10, 20):
        batch.add(Row(step, {"loss": float(step)}))
    batch.add(Row(20, {"test/loss": 7.0}))
    batch.add(Row(30, {"lr": 0.1}))
    batch.add(Row(5, {"lr": 0.2}))
    events = list(batch.flush(monotonic()))
    assert [(event.rank, event.first_step, event.counts, event.values) for event in events] == [
        (3, 1, [1, 1, 1, 7], {"loss": [1.0, 2.0, 3.0, 10.0]}),
        (3, 20, None, {"loss": [20.0], "test/loss": [7.0]}),
        (3, 30, None, {"lr": [0.1]}),
        (3, 5, None, {"lr": [0.2]}),
    ]
    assert list(batch.flush(monotonic())) == []


@pytest.mark.parametrize("stride", [1, 10])
def test_a_flood_is_thinned(stride: int) -> None:
    batch = RowBatch(0)
    for step in range(1, 100_001):
        batch.add(Row(step * stride, {"loss": float(step)}))
    events = list(batch.flush(monotonic()))
    assert sum(map(len, events)) <= 50_000
    assert events[-1].last_step == 100_000 * stride
    assert all(isinstance(event, Metrics) and event.rows for event in events)
