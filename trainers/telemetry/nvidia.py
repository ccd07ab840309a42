"""NVIDIA's GPUs through NVML, by the pynvml module of nvidia-ml-py: samples, traffic over their links, Xid errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from tuiapp.trainers.config import machine
from tuiapp.trainers.config.machine import GpuProcess, choose, nvml_words
from tuiapp.trainers.contract.events import Alert, DeviceSample, MigInstance, place_name
from tuiapp.trainers.telemetry.host import Owners, Rate, system_memory
from tuiapp.trainers.telemetry.source import ABSENT_S, DeadGpu, EnergyCount, SourceError


class NvmlSource:
    """NVML, and the GPUs to sample: `gpus` as in CUDA_VISIBLE_DEVICES, or "all"."""

    name = "NVML"

    def __init__(self, gpus: str, owners: Owners, energy: EnergyCount) -> None:
        self._wanted, self._owners, self._energy = gpus, owners, energy
        self.no_gpus = "it finds no GPU" if gpus == "all" else "it finds none of the run's GPUs"

    def open(self) -> Sequence[NvmlGpu | DeadGpu]:
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            # An earlier start knows nothing of a driver reloaded meanwhile.
            pynvml.nvmlShutdown()
        try:
            pynvml.nvmlInit()
            looked_up = [self._find(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise SourceError(nvml_words(error)) from error
        # A control group's rules, as Slurm's, may hide some: CUDA does not count those.
        present = [gpu for gpu in looked_up if gpu is not None]
        uuids = [gpu.uuid for gpu in present]
        wanted = [word.strip() for word in self._wanted.split(",")]
        missing = [word for word in wanted if word.startswith("GPU-") and not any(u.startswith(word) for u in uuids)]
        parts = {gpu.uuid: _parts(pynvml, gpu.handle) for gpu in present}
        chosen = {*choose(",".join(word for word in wanted if word not in missing), parts)}
        return [
            *(self._open(pynvml, gpu) for gpu in present if chosen & {gpu.uuid, *parts[gpu.uuid]}),
            # A lost GPU does not even report its UUID; its problem may be reported by its place.
            *(DeadGpu(*self._explain(present, word, wanted.index(word))) for word in missing),
        ]

    def _find(self, nvml: Any, index: int) -> _Found | None:
        """Finds a GPU; None if this process may not use it. A silent one has no handle, but its place, and why."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            return _Found(index, handle, nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NO_PERMISSION:
                return None
            return _Found(index, None, place_name(index), str(error))

    def _open(self, nvml: Any, gpu: _Found) -> NvmlGpu | DeadGpu:
        """Opens one GPU; a failing one does not keep the others from being sampled."""
        if gpu.handle is None:
            return DeadGpu(gpu.index, gpu.uuid, gpu.problem)
        try:
            return NvmlGpu(nvml, gpu.handle, gpu.index, gpu.uuid, self._owners, self._energy)
        except nvml.NVMLError as error:
            return DeadGpu(gpu.index, gpu.uuid, str(error))

    def _explain(self, present: list[_Found], uuid: str, index: int) -> tuple[int, str, str]:
        silent = [gpu for gpu in present if gpu.handle is None]
        return (silent[0].index, uuid, silent[0].problem) if len(silent) == 1 else (index, uuid, "it is missing")


@dataclass(frozen=True, slots=True)
class _Found:
    index: int
    handle: Any
    uuid: str
    problem: str = ""


def _parts(nvml: Any, handle: Any) -> list[str]:
    if handle is None:
        return []
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return []
        return [nvml.nvmlDeviceGetUUID(part) for part in mig_handles(nvml, handle)]
    except nvml.NVMLError:
        return []


def mig_handles(nvml: Any, handle: Any) -> list[Any]:
    """Returns the handles of a GPU's MIG instances; raises NVMLError if it does not report them."""
    handles = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            handles.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        except nvml.NVMLError_NotFound:
            continue
    return handles


SLOW_S = 2.0
"""Maximum age of values that change rarely, or are expensive: processes, limits, fan, ECC errors, MIG."""

MOST_32, MOST_64 = 2**31 - 1, 2**63 - 1
HOTTEST_C = 250

REASONS = (
    (0x0002, "application clocks"),
    (0x0004, "power limit"),
    (0x0008, "hardware slowdown"),
    (0x0010, "sync boost"),
    (0x0020, "hot"),
    (0x0040, "too hot"),
    (0x0080, "power brake"),
    (0x0100, "display clocks"),
    (0x0200, "board limit"),
    (0x0400, "reliability"),
)
"""Bits of nvmlClocksEventReasons and their words; 0x1, an idle GPU, is no throttling."""


class Query:
    """A call of NVML for one value, which is not made for a while once the value is not supported."""

    __slots__ = ("_absent", "_again", "_arguments", "_call", "_dead", "_error")

    def __init__(self, nvml: Any, call: Callable[..., Any], *arguments: Any) -> None:
        self._call, self._arguments, self._again = call, arguments, 0.0
        self._error = nvml.NVMLError
        self._absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        self._dead = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_UNINITIALIZED)

    def is_unsupported(self, now: float) -> bool:
        """Whether there is no such value, as of the last time that it was asked for."""
        return now < self._again

    def ask(self, now: float) -> Any:
        """Returns the answer; None if there is none. Raises SourceError if the GPU no longer answers at all."""
        if now < self._again:
            return None
        try:
            return self._call(*self._arguments)
        except self._error as error:
            if error.value in self._dead:
                raise SourceError(str(error)) from error
            if error.value in self._absent:
                self._again = now + ABSENT_S
            return None


class NvmlGpu:
    """One GPU that NVML knows; raises NVMLError if it does not even report its name."""

    def __init__(self, nvml: Any, handle: Any, index: int, uuid: str, owners: Owners, energy: EnergyCount) -> None:
        self.index, self.uuid, self.name = index, uuid, nvml.nvmlDeviceGetName(handle)
        self._nvml, self._handle, self._owners, self._energy = nvml, handle, owners, energy
        self._spoke = False
        self._slow: dict[str, Any] = {}
        self._slow_due = 0.0
        self._links = Links(nvml, handle)
        self._xids = XidEvents(nvml, handle, index, uuid)

        def query(name: str, *arguments: Any) -> Query:
            return Query(nvml, getattr(nvml, name), handle, *arguments)

        self._utilization = query("nvmlDeviceGetUtilizationRates")
        self._memory = query("nvmlDeviceGetMemoryInfo")
        self._power = query("nvmlDeviceGetPowerUsage")
        self._counter = query("nvmlDeviceGetTotalEnergyConsumption")
        self._temperature = query("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
        self._sm_clock = query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
        self._memory_clock = query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)
        # Older drivers know some calls only by their older names.
        self._reasons = [
            query("nvmlDeviceGetCurrentClocksEventReasons"),
            query("nvmlDeviceGetCurrentClocksThrottleReasons"),
        ]
        self._state = query("nvmlDeviceGetPerformanceState")
        self._computing = [query(f"nvmlDeviceGetComputeRunningProcesses_{version}") for version in ("v3", "v2")]
        self._drawing = [query(f"nvmlDeviceGetGraphicsRunningProcesses_{version}") for version in ("v3", "v2")]
        self._seldom = {
            "power_limit_w": query("nvmlDeviceGetEnforcedPowerLimit"),
            "temperature_limit_c": query("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            "sm_clock_limit_mhz": query("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "fan_percent": query("nvmlDeviceGetFanSpeed"),
            "ecc_corrected": query("nvmlDeviceGetTotalEccErrors", 0, nvml.NVML_VOLATILE_ECC),
            "ecc_uncorrected": query("nvmlDeviceGetTotalEccErrors", 1, nvml.NVML_VOLATILE_ECC),
        }
        self._mig_mode = query("nvmlDeviceGetMigMode")
        self._capability = query("nvmlDeviceGetCudaComputeCapability")

    def describe(self, now: float) -> list[machine.Gpu]:
        """Describes the devices that a launch can choose: this GPU, or its MIG instances.

        No more is asked than that takes, since a driver may crash or hang at the rest, and still train.
        """
        utilization_percent = self.load(now)
        mode, capability = self._mig_mode.ask(now), self._capability.ask(now)
        if mode and mode[0]:
            return [
                machine.Gpu(
                    index=self.index,
                    part=number,
                    uuid=part.uuid,
                    name=f"{self.name} MIG {part.name}",
                    memory_total_bytes=part.memory_total_bytes,
                    memory_used_bytes=part.memory_used_bytes,
                    processes=None if part.processes is None else tuple(part.processes),
                    capability=capability,
                )
                for number, part in self._mig(now, set()).items()
            ]
        processes = self._processes(now)
        return [
            machine.Gpu(
                index=self.index,
                uuid=self.uuid,
                name=self.name,
                **self._read_memory(now),
                utilization_percent=utilization_percent,
                processes=None if processes is None else tuple(processes),
                capability=capability,
            )
        ]

    def _read_memory(self, now: float) -> dict[str, Any]:
        """Returns the fields of the GPU's memory, as far as they are known; the system's where it has no other."""
        if memory := self._memory.ask(now):
            used, total = _number(memory.used, MOST_64), _number(memory.total, MOST_64)
            return {"memory_used_bytes": used, "memory_total_bytes": total}
        if not self._memory.is_unsupported(now):
            return {}
        used, total = system_memory()
        return {"memory_used_bytes": used, "memory_total_bytes": total, "has_system_memory": True}

    def load(self, now: float) -> int | None:
        """Returns the utilization in percent; None if it is not known."""
        utilization = self._utilization.ask(now)
        return _number(utilization.gpu, 100) if utilization else None

    def alerts(self, now: float) -> list[Alert]:
        return self._xids.read(now)

    def sample(self, now: float) -> DeviceSample:
        utilization, memory = self._utilization.ask(now), self._read_memory(now)
        power = _scaled(_number(self._power.ask(now)), 1e-3)
        temperature = _number(self._temperature.ask(now), HOTTEST_C)
        has_own_memory = memory and "has_system_memory" not in memory
        if has_own_memory or any(figure is not None for figure in (utilization, power, temperature)):
            self._spoke = True
        elif self._spoke:
            raise SourceError("it no longer answers")
        energy = self._energy.count(self.uuid, _number(self._counter.ask(now), MOST_64), power, now)
        if now >= self._slow_due:
            self._slow, self._slow_due = self._query_rarely(now), now + SLOW_S
        state, links = self._state.ask(now), self._links.rates(now)
        bits = _number(_first(self._reasons, now), MOST_64)
        return DeviceSample(
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            utilization_percent=_number(utilization.gpu, 100) if utilization else None,
            memory_utilization_percent=_number(utilization.memory, 100) if utilization else None,
            **memory,
            power_w=power,
            energy_j=None if energy is None else round(energy, 3),
            temperature_c=temperature,
            sm_clock_mhz=_number(self._sm_clock.ask(now)),
            memory_clock_mhz=_number(self._memory_clock.ask(now)),
            throttle_reasons=None if bits is None else [reason for bit, reason in REASONS if bits & bit],
            # 32: the driver does not know.
            performance_state=state if state is not None and state < 16 else None,
            pcie_rx_bytes_per_s=links.pcie_rx,
            pcie_tx_bytes_per_s=links.pcie_tx,
            nvlink_rx_bytes_per_s=links.nvlink_rx,
            nvlink_tx_bytes_per_s=links.nvlink_tx,
            **self._slow,
        )

    def _query_rarely(self, now: float) -> dict[str, Any]:
        figures: dict[str, Any] = {name: _number(query.ask(now)) for name, query in self._seldom.items()}
        figures["power_limit_w"] = _scaled(figures["power_limit_w"], 1e-3)
        mode = self._mig_mode.ask(now)
        known_pids: set[int] = set()
        figures["mig"] = [*self._mig(now, known_pids).values()] if mode and mode[0] else None
        figures["processes"] = self._processes(now, known_pids)
        return figures

    def _processes(self, now: float, known_pids: Container[int] = ()) -> list[GpuProcess] | None:
        """Returns the processes that hold memory, but for the pids in `known_pids`, which those of the parts have."""
        drawing, computing = _first(self._drawing, now), _first(self._computing, now)
        desktop = {process.pid for process in drawing or ()} - {process.pid for process in computing or ()}
        return self._list([drawing, computing], known_pids, desktop)

    def _list(
        self, answers: list[Any], known_pids: Container[int] = (), desktop: Container[int] = ()
    ) -> list[GpuProcess] | None:
        """Returns the processes that hold memory, but for the pids in `known_pids`; those in `desktop` draw alone."""
        reported = [answer for answer in answers if answer is not None]
        if not reported:
            return None
        memory_of = {
            process.pid: process.usedGpuMemory
            for answer in reported
            for process in answer
            if process.pid not in known_pids
        }
        described = {pid: self._owners.describe(pid, memory) for pid, memory in memory_of.items()}
        return [
            msgspec.structs.replace(process, draws=True) if pid in desktop else process
            for pid, process in described.items()
        ]

    def _mig(self, now: float, known_pids: set[int]) -> dict[int, MigInstance]:
        """Returns the GPU's parts by their numbers; adds the pids that they report to `known_pids`."""
        nvml = self._nvml
        instances = {}
        for number in range(Query(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, self._handle).ask(now) or 0):
            part = Query(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, number).ask(now)
            if part is None or (uuid := Query(nvml, nvml.nvmlDeviceGetUUID, part).ask(now)) is None:
                continue
            memory = Query(nvml, nvml.nvmlDeviceGetMemoryInfo, part).ask(now)
            name = Query(nvml, nvml.nvmlDeviceGetName, part).ask(now) or ""
            processes = Query(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, part).ask(now)
            known_pids.update(process.pid for process in processes or ())
            instances[number] = MigInstance(
                uuid=uuid,
                # "NVIDIA A100-SXM4-40GB MIG 1g.5gb": the GPU's own name is known already.
                name=name.rpartition(" MIG ")[2],
                memory_used_bytes=_number(memory.used, MOST_64) if memory else None,
                memory_total_bytes=_number(memory.total, MOST_64) if memory else None,
                processes=self._list([processes]),
            )
        return instances


def _first(queries: list[Query], now: float) -> Any:
    return next((answer for query in queries if (answer := query.ask(now)) is not None), None)


def _number(value: int | None, most: int = MOST_32) -> int | None:
    """Returns a figure; None if it is impossible: a driver that has none may give -1, read as the largest number."""
    return value if value is not None and 0 <= value <= most else None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 3)


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
        """Returns the rates since the last call; raises SourceError if the GPU no longer answers."""
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
        """Returns the bytes per second that NVML measures over 20 ms, each in a call that takes as long."""
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
        """Returns the Xid and the GPU instance of each new event."""
        events: list[tuple[int, int]] = []
        while self._set is not None and len(events) < AT_ONCE:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_UNKNOWN:
                    # NVML: the set is undefined from here on.
                    self._set = None
                break
            events.append((event.eventData, event.gpuInstanceId))
        return events
