"""GPUs of which little is known, in the fold and in the table."""

from __future__ import annotations

from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import DeviceSample, place_name
from tuiapp.view.devices.drawing import plain
from tuiapp.view.devices.gpu_matrix import gpu_matrix
from tuiapp.view.devices.view import gpu_views


def test_a_gpu_shown_by_its_place_gives_way_to_the_one_that_it_is() -> None:
    lost = DeviceSample(index=1, uuid=place_name(1), name="", problem="GPU is lost", **h.at(1.0))
    other = DeviceSample(index=0, uuid=place_name(0), name="", problem="GPU is lost", **h.at(1.0))
    back = DeviceSample(index=1, uuid="GPU-b", name="B", utilization_percent=5.0, **h.at(2.0))
    assert set(fold([lost, other, back]).gpus) == {place_name(0), "GPU-b"}


def test_gpus_known_by_their_places_on_two_nodes_are_two() -> None:
    lost = [DeviceSample(index=0, node=node, uuid=place_name(0, node), name="", **h.at(1.0)) for node in (0, 1)]
    back = DeviceSample(index=0, node=1, uuid="GPU-b", name="B", **h.at(2.0))
    assert set(fold(lost).gpus) == {"at place 0", "at place 0 of node 1"}
    assert set(fold([*lost, back]).gpus) == {"at place 0", "GPU-b"}


def test_a_gpu_that_tells_neither_work_nor_processes_is_not_called_idle() -> None:
    def told(busy: float | None) -> str:
        sample = DeviceSample(index=0, uuid="GPU-m", name="Mute", utilization_percent=busy, **h.at(1.0))
        return "\n".join(plain(line) for line in gpu_matrix(gpu_views(fold([sample])), 80))

    assert "idle" not in told(None)
    assert "idle" in told(0.0)
