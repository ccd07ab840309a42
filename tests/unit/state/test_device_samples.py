"""What is kept of the samples of a run's devices."""

from __future__ import annotations

import msgspec
import pytest

from tests.kit import device_histories as d
from tests.kit import histories as h
from tests.kit.folding import fold
from tuiapp.trainers.contract.events import DeviceSample, RankStarted, TelemetrySource
from tuiapp.trainers.state.fold import apply
from tuiapp.trainers.state.readings import MOST_GPUS, plain_uuid
from tuiapp.view.devices.drawing import plain
from tuiapp.view.devices.gpu_matrix import gpu_matrix
from tuiapp.view.devices.view import gpu_views


def test_a_gpu_that_is_lost_and_comes_back_keeps_its_name_and_history() -> None:
    lost = DeviceSample(index=1, uuid="GPU-0001", name="", problem="GPU is lost", **h.at(44.0))
    state = fold(d.sampled_last({}, before=[lost]))
    gpu = state.gpus["GPU-0001"]
    assert (gpu.name, gpu.sample.problem) == ("NVIDIA H200", "")
    assert list(gpu.utilization)[-2] is None
    gone = fold([*d.on_gpus(2), lost])
    assert gone.gpus["GPU-0001"].sample.problem
    text = "\n".join(plain(one) for one in gpu_matrix(gpu_views(gone), 76))
    assert "b 1 H200" in text
    assert "✖ GPU is lost" in text


def test_a_sampler_that_was_away_leaves_a_gap() -> None:
    state = fold([*d.on_gpus(1), h.device_sample(0, 60.0)])
    assert list(state.gpus["GPU-0000"].utilization)[-2] is None
    assert None not in list(state.gpus["GPU-0000"].utilization)[:-2]


def test_a_source_s_problem_stands_until_it_works_again() -> None:
    failed = TelemetrySource(source="NVML", problem="Driver Not Loaded", **h.at(45))
    state = fold([*d.on_gpus(1), failed])
    assert state.telemetry_problems == {"NVML": "Driver Not Loaded"}
    apply(state, TelemetrySource(source="NVML", **h.at(46)))
    assert state.telemetry_problems == {}
    assert [entry.text for entry in state.log][-2:] == ["NVML: Driver Not Loaded", "NVML: works again"]
    apply(state, TelemetrySource(source="sampler", **h.at(47)))
    assert list(state.log)[-1].text == "NVML: works again"
    for number in range(100):
        apply(state, TelemetrySource(source=f"source {number}", problem="\x1b]0;x\x07bad", **h.at(48)))
    assert len(state.telemetry_problems) < 20
    assert set(state.telemetry_problems.values()) == {"bad"}


@pytest.mark.parametrize("uuid", ["GPU-8f1c-22", "8F1C-22", "gpu-8f1c-22"])
def test_uuids_of_the_same_device(uuid: str) -> None:
    assert plain_uuid("GPU-8f1c-22") == plain_uuid(uuid)
    assert plain_uuid("GPU-8f1c-23") != plain_uuid(uuid)
    assert plain_uuid("MIG-8f1c-22") != plain_uuid(uuid)


def test_ranks_are_matched_by_uuid_and_not_by_index() -> None:
    events = [
        msgspec.structs.replace(event, uuid=f"000{1 - event.rank}") if isinstance(event, RankStarted) else event
        for event in d.on_gpus(2)
    ]
    views = gpu_views(fold(events))
    assert [[rank.rank for rank in view.ranks] for view in views] == [[1], [0]]
    assert [view.mark.text for view in views] == ["b", "a"]


def test_more_gpus_than_there_can_be_are_not_kept() -> None:
    events = [msgspec.structs.replace(h.device_sample(0, 1.0), uuid=f"GPU-{number}") for number in range(1500)]
    assert len(fold(events).gpus) == MOST_GPUS
