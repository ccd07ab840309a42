"""Traffic on a GPU's links: PCIe and NVLink."""

from __future__ import annotations

from typing import Any, NamedTuple

from trainers.telemetry.host import Rate
from trainers.telemetry.source import SourceError

ABSENT_S = 60.0
ALL_LINKS = 0xFFFFFFFF
"""The scope that sums up all NVLinks."""
KIB = 1024
BLOCKING_S = 5.0
"""Maximum age of a PCIe figure that takes 20 ms to measure."""

NVML_VALUE_TYPES = {1: "uiVal", 2: "ulVal", 3: "ullVal"}
UNKNOWN = 2**63
"""The driver has no value of a counter from here on."""
WIDE = (2, 3)


class LinkRates(NamedTuple):
    """Bytes per second, received and sent; None: not available."""

    pcie_rx: float | None
    pcie_tx: float | None
    nvlink_rx: float | None
    nvlink_tx: float | None


class Links:
    """Bytes per second over PCIe and NVLink."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._fields = [
            (nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
            (nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0),
        ]
        self._rates = [Rate() for _ in range(4)]
        self._again = 0.0
        self._pcie_due = 0.0
        self._pcie: tuple[float | None, float | None] = None, None

    def rates(self, now: float) -> LinkRates:
        """Rates since the last call; raises SourceError if the GPU no longer answers."""
        pcie_rx, pcie_tx, nvlink_rx, nvlink_tx, links = self._query(now)
        if links == 0:
            # Without any link there is no traffic to report, not even zero.
            nvlink_rx = nvlink_tx = None
        if pcie_rx is None or pcie_tx is None:
            rx, tx = self._measured(now)
        else:
            rx, tx = (_whole(rate.of(count, now)) for rate, count in zip(self._rates, (pcie_rx, pcie_tx), strict=False))
        over = (_whole(self._rates[2].of(nvlink_rx, now), KIB), _whole(self._rates[3].of(nvlink_tx, now), KIB))
        return LinkRates(rx, tx, *over)

    def _query(self, now: float) -> list[int | None]:
        if now < self._again:
            return [None] * len(self._fields)
        try:
            values = self._nvml.nvmlDeviceGetFieldValues(self._handle, self._fields)
        except self._nvml.NVMLError as error:
            self._raise_lost(error)
            self._again = now + ABSENT_S
            return [None] * len(self._fields)
        counts: list[int | None] = []
        for number, value in enumerate(values):
            # A 32-bit byte counter wraps several times a second on PCIe 5: useless.
            usable = value.nvmlReturn == 0 and (value.valueType in WIDE or (number > 1 and value.valueType == 1))
            count = getattr(value.value, NVML_VALUE_TYPES[value.valueType]) if usable else UNKNOWN
            counts.append(count if count < UNKNOWN else None)
        if counts == [None] * len(self._fields):
            self._again = now + ABSENT_S
        return counts

    def _measured(self, now: float) -> tuple[float | None, float | None]:
        """Bytes per second that NVML measures over 20 ms, each in a call that takes as long."""
        if now < self._pcie_due:
            return self._pcie
        try:
            # Receive is 1, transmit is 0; in kB/s.
            rx, tx = (self._nvml.nvmlDeviceGetPcieThroughput(self._handle, counter) for counter in (1, 0))
            self._pcie, self._pcie_due = (1000.0 * rx, 1000.0 * tx), now + BLOCKING_S
        except self._nvml.NVMLError as error:
            self._raise_lost(error)
            self._pcie, self._pcie_due = (None, None), now + ABSENT_S
        return self._pcie

    def _raise_lost(self, error: Any) -> None:
        if error.value in (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_RESET_REQUIRED):
            raise SourceError(str(error)) from error


def _whole(rate: float | None, unit: int = 1) -> float | None:
    return None if rate is None else float(round(rate * unit))
