"""What DDP has timed of a step is reported once, for the step that it is of."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.nightly

torch = pytest.importorskip("torch")

from tuiapp.trainers.contract.metrics import SYNC_WAIT  # noqa: E402
from tuiapp.trainers.frameworks.torch.profile import EVERY_ON_CPU, FIRST, SyncWait  # noqa: E402


class Timed:
    """Stands in for DDP, which knows its times of a step once the next one has begun."""

    def __init__(self) -> None:
        self.step, self.every = 0, 0

    def _set_ddp_runtime_logging_sample_rate(self, every: int) -> None:
        self.every = every

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        overlap = {"backward_comm_time": 5_000_000, "backward_compute_comm_overlap_time": 3_000_000}
        return {"iteration": self.step - 1, **overlap}


class Reported:
    def __init__(self) -> None:
        self.found: list[tuple[int, dict[str, float]]] = []

    def metrics(self, step: int, values: dict[str, float]) -> None:
        self.found.append((step, values))


def steps(monkeypatch: pytest.MonkeyPatch, ranks: int, ddp: Any) -> list[tuple[int, dict[str, float]]]:
    """What is reported of 45 steps after a checkpoint of step 100."""
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: ranks)
    report: Any = Reported()
    waited = SyncWait(ddp, torch.device("cpu"), report)
    for step in range(1, 46):
        ddp.step = step
        waited.report(100 + step)
    return report.found  # type: ignore[no-any-return]


def test_the_first_steps_and_then_some(monkeypatch: pytest.MonkeyPatch) -> None:
    ddp = Timed()
    found = steps(monkeypatch, 2, ddp)
    assert [step - 100 for step, _ in found] == [*range(1, FIRST + 1), EVERY_ON_CPU, 2 * EVERY_ON_CPU]
    assert ddp.every == EVERY_ON_CPU
    assert found[0][1] == {SYNC_WAIT: pytest.approx(0.002)}


def test_nobody_waits_alone_and_another_version_of_torch_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps(monkeypatch, 1, Timed()) == []
    assert steps(monkeypatch, 2, Reported()) == []
