"""Xid errors, which NVIDIA's driver reports when they happen, as alerts.

Source: https://docs.nvidia.com/deploy/xid-errors/ and
https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html
"""

from __future__ import annotations

from typing import Any, Literal

from tuiapp.trainers.contract.events import Alert

AT_ONCE = 32
"""Most events that are read in one go."""
QUIET_S = 600.0
"""How long an Xid that repeats is not reported again."""
WHOLE_GPU = 0xFFFFFFFF
"""The GPU instance of an event that concerns no single one, or of a GPU that is not in MIG mode."""
CATALOG = "https://docs.nvidia.com/deploy/xid-errors/"

MEANINGS: dict[int, tuple[Literal["info", "warning", "error"], str]] = {
    13: ("warning", "a kernel failed, most often by an index out of bounds in a program"),
    31: ("warning", "a program accessed an invalid address"),
    32: ("error", "commands arrived corrupted: the driver, the PCIe link or the GPU is at fault"),
    43: ("warning", "a program failed and was stopped; the GPU goes on"),
    45: ("info", "the driver cleaned up after a program that was killed or had failed before"),
    48: ("error", "a memory error could not be corrected (ECC): reset the GPU"),
    61: ("error", "its microcontroller stopped: reset the GPU"),
    62: ("error", "its microcontroller halted: reset the GPU"),
    63: ("warning", "a faulty part of its memory is marked, and is replaced at the GPU's next reset"),
    64: ("error", "a faulty part of its memory could not be marked for replacement: reset the GPU"),
    74: ("error", "an NVLink connection failed: look at both of its ends"),
    79: ("error", "it has fallen off the PCIe bus: restart the machine; look at power, heat and its slot"),
    92: ("warning", "memory errors are corrected unusually often (ECC)"),
    94: ("warning", "a memory error was contained: only the program that used that memory fails"),
    95: ("error", "a memory error was not contained: any program on it may fail; reset the GPU"),
    109: ("warning", "it could not switch to another program in time"),
    119: ("error", "its system processor (GSP) does not answer the driver: reset the GPU"),
    120: ("error", "its system processor (GSP) failed: reset the GPU"),
    140: ("error", "a memory error could not be recovered from (ECC): reset the GPU"),
}
"""Xid → severity and meaning. An event does not say which program it was."""


class XidEvents:
    """The Xid errors of one GPU from the first `read` on; none where the driver does not report them."""

    def __init__(self, nvml: Any, handle: Any, index: int, uuid: str) -> None:
        self._nvml, self._handle, self._index, self._uuid = nvml, handle, index, uuid
        self._set: Any = None
        self._is_registered = False
        self._told: dict[int, float] = {}
        """Xid → when it was last reported, on the monotonic clock."""

    def read(self, now: float) -> list[Alert]:
        """Returns an alert for each Xid since the last call, but not for one that was reported a while ago."""
        if not self._is_registered:
            self._is_registered = True
            self._set = self._register()
        alerts = []
        for code, instance in self._events():
            if now - self._told.get(code, -QUIET_S) < QUIET_S:
                continue
            self._told[code] = now
            severity, meaning = MEANINGS.get(code, ("warning", f"its meaning is in {CATALOG}"))
            part = "" if instance == WHOLE_GPU else f" of its GPU instance {instance}"
            text = f"GPU {self._index} reported Xid {code}{part}: {meaning}"
            alerts.append(Alert(kind="xid", severity=severity, device=self._uuid, text=text))
        return alerts

    def _register(self) -> Any:
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            return None
        return events

    def _events(self) -> list[tuple[int, int]]:
        """Xid and GPU instance of each new event."""
        found: list[tuple[int, int]] = []
        while self._set is not None and len(found) < AT_ONCE:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_UNKNOWN:
                    # NVML: the set is undefined from here on.
                    self._set = None
                break
            found.append((event.eventData, event.gpuInstanceId))
        return found
