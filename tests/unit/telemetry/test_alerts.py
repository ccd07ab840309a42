"""Alerts from made-up samples: raised once, ended once, whatever flickers in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.kit import histories as h
from tuiapp.trainers.contract.events import Alert, DeviceSample, HostSample
from tuiapp.trainers.telemetry.alerts import GIB, Alerts

GOOD = msgspec.structs.replace(h.device_sample(0, 0.0), throttle_reasons=[])
HOST = h.host_sample(0.0)


def run(samples: Iterable[DeviceSample | HostSample], alerts: Alerts | None = None) -> list[tuple[float, str, bool]]:
    """Which alerts begin (True) and end (False), and at which second."""
    alerts = alerts or Alerts()
    return [(sample.mono - 1000, alert.kind, not alert.ended) for sample in samples for alert in alerts.check(sample)]


def gpu(seconds: float, **changes: Any) -> DeviceSample:
    return msgspec.structs.replace(GOOD, **h.at(seconds), **changes)


def host(seconds: float, **changes: Any) -> HostSample:
    return msgspec.structs.replace(HOST, **h.at(seconds), **changes)


def test_nothing_is_said_of_what_is_well() -> None:
    assert run([*(gpu(second) for second in range(100)), *(host(second) for second in range(100))]) == []


@pytest.mark.parametrize(
    ("reason", "kind", "raised", "ended"),
    [
        ("hot", "thermal", 3, 15),
        ("too hot", "thermal", 3, 15),
        ("hardware slowdown", "hardware-slowdown", 1, 15),
        ("power brake", "hardware-slowdown", 1, 15),
        ("power limit", "power", 10, 30),
    ],
)
def test_throttling(reason: str, kind: str, raised: float, ended: float) -> None:
    samples = [gpu(second, throttle_reasons=[reason] if 10 <= second < 60 else []) for second in range(200)]
    # A state is known from its first sample on: the time until then is the better one's.
    assert run(samples) == [(9 + raised, kind, True), (59 + ended, kind, False)]


def test_flickering_is_one_alert() -> None:
    two_of_three = [gpu(second, throttle_reasons=["hot"] if second % 3 else []) for second in range(100)]
    assert [(kind, begins) for _, kind, begins in run(two_of_three)] == [("thermal", True)]
    one_of_three = [gpu(second, throttle_reasons=[] if second % 3 else ["hot"]) for second in range(100)]
    assert run(one_of_three) == []


def test_memory_between_its_thresholds_changes_nothing() -> None:
    shares = [0.5] * 5 + [0.96] * 5 + [0.94, 0.91, 0.96, 0.92] * 20 + [0.89] * 20
    samples = [
        gpu(second, memory_used_bytes=int(share * 100 * GIB), memory_total_bytes=100 * GIB)
        for second, share in enumerate(shares)
    ]
    assert [(kind, begins) for _, kind, begins in run(samples)] == [("gpu-memory", True), ("gpu-memory", False)]
    rising = [gpu(second, memory_used_bytes=94 * GIB, memory_total_bytes=100 * GIB) for second in range(50)]
    assert run(rising) == []


def test_a_gpu_that_is_idle_while_the_other_works() -> None:
    def pair(second: float, first: float, other: float) -> list[DeviceSample]:
        return [
            gpu(second, utilization_percent=first),
            gpu(second, utilization_percent=other, index=1, uuid="GPU-0001"),
        ]

    busy = [one for second in range(10) for one in pair(second, 90, 95)]
    hang = [one for second in range(10, 60) for one in pair(second, 0, 100)]
    both = [one for second in range(60, 90) for one in pair(second, 0, 0)]
    told = run([*busy, *hang, *both])
    assert [(kind, begins) for _, kind, begins in told] == [("gpu-idle", True), ("gpu-idle", False)]
    assert 29 <= told[0][0] <= 31
    # While all evaluate on the host, or save, nobody works: that is no hang.
    assert run(both) == []


def test_ecc_errors() -> None:
    samples = [gpu(second, ecc_corrected=5, ecc_uncorrected=0) for second in range(10)]
    samples += [gpu(second, ecc_corrected=6, ecc_uncorrected=0) for second in range(10, 20)]
    samples += [gpu(second, ecc_corrected=6, ecc_uncorrected=2) for second in range(20, 700)]
    assert run(samples) == [
        (10, "ecc", True),
        (20, "ecc-uncorrected", True),
        (610, "ecc", False),
        (620, "ecc-uncorrected", False),
    ]


def test_a_lost_gpus_alerts_end() -> None:
    hot = [gpu(second, throttle_reasons=["hot"]) for second in range(10)]
    lost = [
        DeviceSample(index=0, uuid=GOOD.uuid, name="", problem="GPU is lost", **h.at(second)) for second in (10, 20)
    ]
    back = [gpu(30), gpu(31)]
    assert run([*hot, *lost, *back]) == [
        (3, "thermal", True),
        (10, "gpu-lost", True),
        (10, "thermal", False),
        (30, "gpu-lost", False),
    ]


def test_disks() -> None:
    total = 200 * GIB
    full = [host(second, disk_free_bytes=9 * GIB, disk_total_bytes=total) for second in range(20)]
    between = [host(second, disk_free_bytes=12 * GIB, disk_total_bytes=total) for second in range(20, 60)]
    free = [host(second, disk_free_bytes=15 * GIB, disk_total_bytes=total) for second in range(60, 90)]
    assert [(kind, begins) for _, kind, begins in run([*full, *between, *free])] == [("disk", True), ("disk", False)]
    # 2 % of 2 TiB are no little room; 900 MiB are, of whatever.
    assert run([host(second, disk_free_bytes=40 * GIB, disk_total_bytes=2048 * GIB) for second in range(20)]) == []
    small = [host(second, disk_free_bytes=900 << 20, disk_total_bytes=4 * GIB) for second in range(20)]
    assert [kind for _, kind, _ in run(small)] == ["disk"]


def test_shared_memory() -> None:
    samples = [
        host(second, shm_used_bytes=int(share * GIB), shm_total_bytes=GIB)
        for second, share in enumerate([0.95] * 9 + [0.85] * 20 + [0.1] * 20)
    ]
    assert [(kind, begins) for _, kind, begins in run(samples)] == [("shm", True), ("shm", False)]


def test_a_gap_is_not_counted() -> None:
    assert run([gpu(0, throttle_reasons=["power limit"]), gpu(9, throttle_reasons=["power limit"])]) == []
    told = run(
        [gpu(0, throttle_reasons=["hot"]), gpu(1, throttle_reasons=["hot"]), gpu(9000, throttle_reasons=["hot"])]
    )
    assert [kind for _, kind, _ in told] == ["thermal"]


def test_every_alert_and_its_end_say_what_they_are_about() -> None:
    alerts = Alerts()
    said: list[Alert] = []
    for second in range(200):
        bad = second < 60
        sample = gpu(
            second,
            throttle_reasons=["hot", "power brake", "power limit"] if bad else [],
            memory_used_bytes=99 * GIB if bad else GIB,
            memory_total_bytes=100 * GIB,
        )
        said += alerts.check(sample)
        said += alerts.check(
            host(second, disk_free_bytes=GIB // 2 if bad else 90 * GIB, shm_used_bytes=8 * GIB if bad else 0)
        )
    assert len({alert.kind for alert in said}) == 6
    for alert in said:
        assert (alert.device == GOOD.uuid) == alert.text.startswith("GPU 0")
        assert alert.severity == "info" or not alert.ended
    assert sum(alert.ended for alert in said) == sum(not alert.ended for alert in said) == 6
