"""Xid errors that the scripted library reports, as alerts of a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.kit.fake_nvml import FakeNvml, gpu, needs_compiler, several
from tests.unit.telemetry.conftest import Sampling
from tuiapp.trainers.contract.events import Alert, DeviceSample
from tuiapp.trainers.telemetry.nvidia import QUIET_S, XidEvents

pytestmark = needs_compiler

Start = Callable[..., Sampling]


def test_an_xid_is_an_alert_on_its_gpu(nvml: FakeNvml, sample: Start) -> None:
    # Those from before the run are not its own.
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", xid="13"))
    sampling = sample()
    sampling.wait(DeviceSample, lambda one: one.index == 1)
    nvml.say(several(1) + gpu("GPU-0001", "Fake 1", xid="13 48 45 7"))
    alerts = [sampling.wait(Alert) for _ in range(3)]
    assert {(one.kind, one.device) for one in alerts} == {("xid", "GPU-0001")}
    assert [one.severity for one in alerts] == ["error", "info", "warning"]
    assert [one.text for one in alerts] == [
        "GPU 1 reported Xid 48: a memory error could not be corrected (ECC): reset the GPU",
        "GPU 1 reported Xid 45: the driver cleaned up after a program that was killed or had failed before",
        "GPU 1 reported Xid 7: its meaning is in https://docs.nvidia.com/deploy/xid-errors/",
    ]


def test_an_xid_of_a_gpu_that_is_lost_by_it_is_reported(nvml: FakeNvml, sample: Start) -> None:
    sampling = sample()
    sampling.wait(DeviceSample)
    lost = "fault nvmlDeviceGetUtilizationRates return 15"
    nvml.say(gpu("GPU-0000", "Fake 0", lost, xid="79"))
    assert sampling.wait(Alert).text.startswith("GPU 0 reported Xid 79: it has fallen off the PCIe bus")
    assert sampling.wait(DeviceSample, lambda one: one.index == 0).problem == "GPU is lost"


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_where_xids_cannot_be_had_nothing_is_said(nvml: FakeNvml, sample: Start, function: str) -> None:
    nvml.say(f"fault {function} return 3\n" + several(1))
    sampling = sample()
    sampling.wait(DeviceSample)
    nvml.say(f"fault {function} return 3\n" + several(1, xid="79", temperature=77))
    told = sampling.wait(DeviceSample, lambda one: one.temperature_c == 77)
    assert (told.problem, [one for one in sampling.events if isinstance(one, Alert)]) == ("", [])


class Events:
    """pynvml's part of it: a list of Xids for each time that all are read."""

    nvmlEventTypeXidCriticalError, NVML_ERROR_UNKNOWN = 8, 999

    class NVMLError(Exception):
        value = 10

    def __init__(self, *xids: list[int]) -> None:
        self._xids = [code for some in xids for code in (*some, None)]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, *_: object) -> None: ...

    def nvmlEventSetWait_v2(self, _: object, timeout_ms: int) -> SimpleNamespace:
        assert timeout_ms == 0
        if (code := self._xids.pop(0)) is None:
            raise self.NVMLError
        return SimpleNamespace(eventData=code, gpuInstanceId=3)


def test_a_repeated_xid_is_reported_once_in_a_while() -> None:
    events = XidEvents(Events([31, 31, 13], [31], [], [31]), None, 0, "GPU-a")
    assert [one.text.split(":")[0] for one in events.read(1000.0)] == [
        "GPU 0 reported Xid 31 of its GPU instance 3", "GPU 0 reported Xid 13 of its GPU instance 3",
    ]  # fmt: skip
    assert events.read(1001.0) == events.read(1002.0) == []
    assert [one.severity for one in events.read(1000.0 + QUIET_S)] == ["warning"]
