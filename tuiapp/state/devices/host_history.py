"""The last samples of the host."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainers.contract.events import HostSample
from tuiapp.state.devices.gpu import GAP_S, History, new_history


@dataclass(slots=True)
class HostHistory:
    cpu: History = field(default_factory=new_history)  # in percent of all cores
    memory: History = field(default_factory=new_history)  # used share, in percent
    received: History = field(default_factory=new_history)  # from the network, in bytes/s
    sent: History = field(default_factory=new_history)
    last_time: float | None = None  # of the last sample, in seconds since the epoch

    def add(self, sample: HostSample) -> None:
        if self.last_time is not None and sample.time - self.last_time > GAP_S:
            for history in (self.cpu, self.memory, self.received, self.sent):
                history.append(None)
        self.last_time = sample.time
        total = sample.memory_total_bytes
        self.cpu.append(sample.cpu_percent)
        self.memory.append(100 * sample.memory_used_bytes / total if total else None)
        self.received.append(sample.network_rx_bytes_per_s)
        self.sent.append(sample.network_tx_bytes_per_s)
