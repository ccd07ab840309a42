"""What a run makes of its devices, in a line."""

from __future__ import annotations

import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tests.kit.reported import with_values
from tuiapp.view.devices.drawing import plain
from tuiapp.view.devices.large import efficiency_line


def test_efficiency_in_a_line() -> None:
    told = plain(efficiency_line(fold(d.on_gpus(2)), 120))
    assert told.startswith("  model 14.8 GFLOP/s · MFU ")
    assert "GPU idle time" in told
    assert "examples/J" in told


@pytest.mark.parametrize(
    ("width", "text"),
    [(60, "model 59.1 GFLOP/s · MFU 0.0 % · GPU idle time 10 %"), (49, "59.1 GFLOP/s · MFU 0.0 % · GPU idle time 10 %"),
     (34, "model 59.1 GFLOP/s · MFU 0.0 %"), (24, "model 59.1 GFLOP/s")],
)  # fmt: skip
def test_flops_go_without_their_name_where_that_makes_room_beside_mfu(width: int, text: str) -> None:
    assert plain(efficiency_line(fold(d.on_gpus(8)), width)).strip() == text


def test_flops_without_mfu_have_their_name_or_make_room() -> None:
    waited = with_values(h.steps(0, 131, 140, 9.0), data_wait=[0.01] * 10)
    state = fold([*h.running(2), waited])
    told = [plain(efficiency_line(state, width)).strip() for width in (44, 34)]
    assert told == ["model 14.8 GFLOP/s · data wait 20.0 %", "data wait 20.0 %"]
    assert plain(efficiency_line(fold(h.running(2)), 34)).strip() == "model 14.8 GFLOP/s"
