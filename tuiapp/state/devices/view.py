"""The GPUs as a view shows them: with the letters of the run's devices, their ranks and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainers.config.machine import GpuProcess
from trainers.contract.events import FrameworkMemory, MigInstance
from tuiapp.state.array_state import letter
from tuiapp.state.devices.condition import GpuCondition, gpu_condition, is_idle
from tuiapp.state.devices.gpu import GpuState, plain_uuid
from tuiapp.state.devices.spans import Role, Span
from tuiapp.state.rank_state import RankState
from tuiapp.state.run_state import RunState
from tuiapp.state.text import sanitize


@dataclass(frozen=True, slots=True)
class GpuView:
    gpu: GpuState
    ranks: tuple[RankState, ...]
    """Those on it, or on one of its MIG instances; none for a GPU that is not the run's."""
    places: dict[int, int]
    """Rank → index of its device among those of the run, which gives the letter."""
    condition: GpuCondition | None

    @property
    def place(self) -> int | None:
        """Of the first rank's device; None where there is no rank, or each MIG instance has its own."""
        known = [place for rank in self.ranks if (place := self.places.get(rank.rank)) is not None]
        return min(known, default=None) if not self.gpu.sample.mig else None

    @property
    def mark(self) -> Span:
        """Its letter in its colour, or a blank."""
        return letter_span(self.place)

    @property
    def role(self) -> Role:
        return self.place if self.place is not None else "muted"

    def owner(self, part: MigInstance) -> RankState | None:
        return next((rank for rank in self.ranks if self.gpu.part(rank.uuid) is part), None)

    @property
    def model(self) -> str:
        name = sanitize(self.gpu.name, 60)
        for maker in ("NVIDIA ", "AMD "):
            name = name.removeprefix(maker)
        return name

    def framework_bytes(self, of: Callable[[FrameworkMemory], int | None]) -> int | None:
        """Returns the sum of a figure over the ranks' frameworks; None where not available."""
        known = [count for rank in self.ranks if rank.framework and (count := of(rank.framework)) is not None]
        return sum(known) if known else None

    @property
    def foreign_processes(self) -> list[GpuProcess]:
        return self.gpu.foreign_processes


def gpu_views(state: RunState) -> list[GpuView]:
    """Returns all GPUs by node, in the driver's order."""
    places: dict[int, int] = {}
    for place, (rank, _) in enumerate(state.devices()):
        places.setdefault(rank, place)
    gpus = sorted(state.gpus.values(), key=lambda gpu: (gpu.sample.node, gpu.sample.index))
    users: dict[str, list[RankState]] = {}
    for one in state.ranks.values():
        if one.uuid:
            users.setdefault(plain_uuid(one.uuid), []).append(one)
    owners = [_by_number(rank for uuid in gpu.uuids for rank in users.get(uuid, ())) for gpu in gpus]
    works = any(ranks and gpu.utilization and not is_idle(gpu) for gpu, ranks in zip(gpus, owners, strict=True))
    training = state.phase == "training"
    return [
        GpuView(
            gpu,
            ranks,
            places,
            gpu_condition(gpu, training=training and bool(ranks), ours=bool(ranks), others_work=works),
        )
        for gpu, ranks in zip(gpus, owners, strict=True)
    ]


def _by_number(ranks: Iterable[RankState]) -> tuple[RankState, ...]:
    return tuple(sorted(ranks, key=lambda rank: rank.rank))


def mig_name(part: MigInstance) -> str:
    """Returns the profile of a MIG instance: "1g.10gb"."""
    return sanitize(part.name, 30).removeprefix("MIG ") or "MIG"


def letter_span(place: int | None) -> Span:
    """Returns the letter of the run's device with that index, or a blank."""
    return Span(letter(place), place) if place is not None else Span(" ")
