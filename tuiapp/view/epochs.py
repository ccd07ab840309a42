"""A run's epochs as a table: for the Run screen, `tuiapp show` and exports."""

from __future__ import annotations

from collections.abc import Collection

from tuiapp.trainers.contract.metrics import LOSS, RATE, TEST_ACCURACY, TEST_LOSS, evaluation_of
from tuiapp.trainers.state.epochs import Epoch
from tuiapp.trainers.state.known_metrics import KNOWN, metric
from tuiapp.trainers.state.text import format_seconds, join_words
from tuiapp.view.table import Column


def _steps(row: Epoch) -> str:
    return f"{row.steps:,}" if row.is_whole or not row.of else f"{row.steps:,}/{row.of:,}"


def _loss(row: Epoch) -> str:
    return "NaN" if row.loss is None and row.examples else KNOWN[LOSS].format(row.loss)


def epoch_columns(names: Collection[str]) -> tuple[Column[Epoch], ...]:
    """Returns the columns; `names` are the run's metrics, as of which those of its evaluation are called."""
    _, loss, accuracy = evaluation_of(names)
    loss, accuracy = metric(loss or TEST_LOSS).label, metric(accuracy or TEST_ACCURACY).label
    return (
        Column("epoch", 5, lambda row: f"{row.number:,}", 0, most=9),
        Column("steps", 5, _steps, 5, most=21),
        Column("loss", 7, _loss, 1),
        Column("seconds", 8, lambda row: format_seconds(row.seconds or None), 2),
        Column("examples/s", 10, lambda row: KNOWN[RATE].format(row.examples_per_second), 3),
        Column("first step", 10, lambda row: format_seconds(row.first_seconds), 6),
        Column(loss, max(9, len(loss)), lambda row: KNOWN[TEST_LOSS].format(row.test_loss), 7),
        Column(accuracy, max(8, len(accuracy)), lambda row: KNOWN[TEST_ACCURACY].format(row.test_accuracy), 4),
        Column("evaluation", 10, lambda row: format_seconds(row.test_seconds), 8),
    )


def epoch_facts(row: Epoch) -> dict[str, int | float | None]:
    """Returns an epoch's figures, for JSON and as an export's row; null for what is not known or not finite."""
    return {
        "epoch": row.number,
        "steps": row.steps,
        "of_steps": row.of or None,
        "loss": row.loss,
        "seconds": row.seconds or None,
        "examples_per_second": row.examples_per_second,
        "first_step_seconds": row.first_seconds,
        "test_loss": row.test_loss,
        "test_accuracy": row.test_accuracy,
        "test_seconds": row.test_seconds,
    }


def epoch_words(row: Epoch, epochs: int) -> str:
    """Describes a whole epoch in a line."""
    loss, took, rate = _loss(row), format_seconds(row.seconds), KNOWN[RATE].format(row.examples_per_second)
    parts = [f"epoch {row.number:,}/{epochs:,}", f"loss {loss}", f"{took}/epoch", f"{rate} examples/s"]
    return join_words(parts if row.seconds else parts[:2])
