"""`python -m tuiapp.trainers.telemetry.links`: what the links of this machine's NVIDIA GPUs can do, as JSON, once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml
from msgspec.structs import replace

from tuiapp.trainers.config.machine import Link
from tuiapp.trainers.telemetry.nvidia import NVML_VALUE_TYPES, Query

BYTES_PER_LANE = {1: 250e6, 2: 500e6, 3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130, 5: 32e9 / 8 * 128 / 130,
                  6: 64e9 / 8 * 242 / 256}  # fmt: skip
"""PCIe generation → bytes a second, of one lane in one direction, once the encoding is taken off."""


def read_links() -> list[Link]:
    """Queries NVML; no GPUs where there is no driver."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    return [_link(index, handle) for index, handle in enumerate(handles)]


def _link(index: int, handle: Any) -> Link:
    def ask(name: str, *arguments: Any) -> Any:
        call: Callable[..., Any] = getattr(pynvml, name)
        return Query(pynvml, call, handle, *arguments).ask(time.monotonic())

    link = Link(uuid=ask("nvmlDeviceGetUUID") or "", index=index, name=ask("nvmlDeviceGetName") or "")
    fields = [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
    count, speed = map(_value, ask("nvmlDeviceGetFieldValues", fields) or [None, None])
    up = sum(ask("nvmlDeviceGetNvLinkState", number) == 1 for number in range(count or 0))
    if up and speed:
        return replace(link, kind=f"NVLink ×{up}", bytes_per_s=1e6 * up * speed)
    # At most: a GPU at rest may have slowed its link down.
    generation, lanes = ask("nvmlDeviceGetMaxPcieLinkGeneration"), ask("nvmlDeviceGetMaxPcieLinkWidth")
    if generation in BYTES_PER_LANE and lanes:
        return replace(link, kind=f"PCIe {generation} ×{lanes}", bytes_per_s=BYTES_PER_LANE[generation] * lanes)
    return link


def _value(field: Any) -> int | None:
    if field is None or field.nvmlReturn or field.valueType not in NVML_VALUE_TYPES:
        return None
    figure: int = getattr(field.value, NVML_VALUE_TYPES[field.valueType])
    return figure


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_links()))
