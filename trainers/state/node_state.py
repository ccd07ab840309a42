"""The state of one node of a run on several machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from trainers.contract.events import HostSample
from trainers.state.readings import HostHistory

NodeStatus: TypeAlias = Literal["awaited", "joined", "silent", "lost"]

MAX_NODES = 1024


@dataclass(slots=True)
class NodeState:
    number: int
    host: str = ""  # its name; "" before it has joined
    status: NodeStatus = "awaited"
    sample: HostSample | None = None  # the latest
    history: HostHistory = field(default_factory=HostHistory)
