"""The GPUs as a view shows them, with the letters of the run's devices; and in a row or two each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuiapp.trainers.config.gpu_choice import Use, use_of
from tuiapp.trainers.config.machine import Gpu, Lease
from tuiapp.trainers.contract.events import DeviceSample, FrameworkMemory, MigInstance
from tuiapp.trainers.state.rank_state import RankState, letter
from tuiapp.trainers.state.readings import GpuState, gpu_condition, is_idle, memory_percent, plain_uuid
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.signs import Condition
from tuiapp.trainers.state.text import fit, plural, sanitize, sparkline
from tuiapp.view.devices.drawing import (
    SYSTEM_MEMORY,
    Line,
    Role,
    Span,
    bar_row,
    bar_span,
    beside,
    celsius,
    join_fitting,
    level,
    line,
    megahertz,
    pad,
    percent,
    share,
    sign,
    traffic,
    watts,
)


@dataclass(frozen=True, slots=True)
class GpuView:
    gpu: GpuState
    ranks: tuple[RankState, ...]
    """The ranks on it, or on one of its MIG instances; none for a GPU that is not the run's."""
    places: dict[int, int]
    """Rank → index of its device among those of the run, which gives the letter."""
    condition: Condition | None
    leases: tuple[Lease, ...] = ()
    """The runs that have it, of this one and others."""

    @property
    def use(self) -> Use:
        """What others leave of it, by the one rule: see `tuiapp.trainers.config.gpu_choice`."""
        sample = self.gpu.sample
        busy = sample.utilization_percent
        gpu = Gpu(
            index=sample.index,
            uuid=sample.uuid,
            name=sample.name,
            memory_total_bytes=sample.memory_total_bytes,
            memory_used_bytes=sample.memory_used_bytes,
            has_system_memory=sample.has_system_memory,
            utilization_percent=None if busy is None else round(busy),
            processes=tuple(self.gpu.foreign_processes),
            leases=self.leases,
        )
        return use_of(gpu)

    @property
    def place(self) -> int | None:
        """The index of the first rank's device; None where there is no rank, or each MIG instance has its own."""
        devices = [self.places[rank.rank] for rank in self.ranks if rank.rank in self.places]
        return min(devices, default=None) if not self.gpu.sample.mig else None

    @property
    def mark(self) -> Span:
        """Returns the device's letter in its colour, or a blank."""
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
        counts = [count for rank in self.ranks if rank.framework and (count := of(rank.framework)) is not None]
        return sum(counts) if counts else None


def device_places(state: RunState) -> dict[int, int]:
    """Returns the index of each rank's first device, which gives its letter."""
    return {rank: index for index, (rank, _) in reversed(list(enumerate(state.devices())))}


def gpu_views(state: RunState, leases: Sequence[Lease] = ()) -> list[GpuView]:
    """Returns all GPUs by node, in the driver's order; `leases` are those of this machine's."""
    places = device_places(state)
    gpus = sorted(state.gpus.values(), key=lambda gpu: (gpu.sample.node, gpu.sample.index))
    users: dict[str, list[RankState]] = {}
    for rank in state.ranks.values():
        if rank.uuid:
            users.setdefault(plain_uuid(rank.uuid), []).append(rank)
    owners = [
        sorted((rank for uuid in gpu.uuids for rank in users.get(uuid, ())), key=lambda rank: rank.rank) for gpu in gpus
    ]
    works = any(ranks and gpu.utilization and not is_idle(gpu) for gpu, ranks in zip(gpus, owners, strict=True))
    training = state.phase == "training"
    return [
        GpuView(
            gpu,
            tuple(ranks),
            places,
            gpu_condition(gpu, training=training and bool(ranks), ours=bool(ranks), others_work=works),
            tuple(lease for lease in leases if plain_uuid(lease.gpu) in gpu.uuids),
        )
        for gpu, ranks in zip(gpus, owners, strict=True)
    ]


def mig_name(part: MigInstance) -> str:
    """Returns the profile of a MIG instance: "1g.10gb"."""
    return sanitize(part.name, 30).removeprefix("MIG ") or "MIG"


def letter_span(device: int | None) -> Span:
    """Returns the letter of the run's device with that index, or a blank."""
    return Span(letter(device), device) if device is not None else Span(" ")


LABEL_CELLS = 14  # letter, index and name; below them the memory in figures
LEAST_BAR_CELLS = 3
LEAST_NOTE_CELLS = 12  # least width to the right of a bar: "612 W  64 °C"
MOST_NOTE_CELLS = 76


def two_rows_each(views: Sequence[GpuView], width: int) -> list[Line]:
    """Returns two rows per GPU: utilization and its history; memory, power, temperature, clock and traffic."""
    note = max(LEAST_NOTE_CELLS, min(MOST_NOTE_CELLS, (width - LABEL_CELLS - 9) * 11 // 20))
    room = max(LEAST_BAR_CELLS, width - LABEL_CELLS - note - 9)
    lines: list[Line] = []
    for view in views:
        sample = view.gpu.sample
        label = view.mark, fit(f" {sample.index} {view.model}", LABEL_CELLS - len(view.mark.text))
        lines.append(bar_row(label, sample.utilization_percent, room, view.role, *_first_note(view, note)))
        lines.append(_memory_row(view, room, note))
        lines += [_mig_row(view, part, room) for part in sample.mig or ()]
    return [pad(row, width) for row in lines]


def one_row_each(views: Sequence[GpuView], width: int) -> list[Line]:
    """Returns one row per GPU, below a line with what they have in common."""
    tail = 13 if width < 72 else 30 if width < 96 else 44 if width < 130 else 80
    room = 17 if tail < 80 else 50
    name = 14 if width >= 84 else 0
    bars = max(8, width - 5 - name - 16 - tail)
    busy, full = bars - bars // 3, bars // 3
    lines = [_common(views, busy, full, name)]
    for view in views:
        sample = view.gpu.sample
        figures = join_fitting(_figures(sample, limit=tail > 13), room, "  ")
        wide = [Span(figures.ljust(room + 2)), *_first_note(view, tail - room - 2)]
        memory = memory_percent(sample)
        row = line(
            view.mark,
            f" {sample.index}".ljust(5 - len(view.mark.text)),
            fit(f" {view.model}", name),
            bar_span(sample.utilization_percent, busy, view.role),
            f" {percent(sample.utilization_percent)}  ",
            bar_span(memory, full, _memory_role(view)),
            f" {percent(memory)}",
            sign(level(memory)),
            " ",
            *(wide if tail > 13 else _narrow_note(view, figures)),
        )
        lines += [row, *(_mig_row(view, part, busy) for part in sample.mig or ())]
    return [pad(row, width) for row in lines]


def _narrow_note(view: GpuView, figures: str) -> list[Span]:
    condition = view.condition
    if condition is None or condition.severity == "info":
        return [Span(figures)]
    text = condition.within(13)
    degrees = f" {celsius(view.gpu.sample.temperature_c)}" if len(text) < 7 else ""
    return [Span(text, condition.severity), Span(degrees)]


def two_a_row(views: Sequence[GpuView], width: int) -> list[Line]:
    """Returns two GPUs per row, the second half of them beside the first: utilization, and memory or condition."""
    cell = (width - 2) // 2
    rows = -(-len(views) // 2)
    cells = [_dense(view, cell) for view in views]
    pairs = zip(cells[:rows], [*cells[rows:], []], strict=False)
    return [line(Span(fit(f"{_title(views)}  busy", width), "muted")), *(beside(pair, cell, 2) for pair in pairs)]


def _dense(view: GpuView, width: int) -> Line:
    sample = view.gpu.sample
    note = Span(f" mem {percent(memory_percent(sample)).strip():>4}")
    if view.condition is not None and view.condition.severity != "info":
        note = Span(f" {view.condition.within(9)}", view.condition.severity)
    busy = sample.utilization_percent
    bar_cells = max(1, width - 5 - 5 - 9)
    return line(
        view.mark,
        f" {sample.index}".ljust(5 - len(view.mark.text)),
        bar_span(busy, bar_cells, view.role),
        percent(busy),
        note,
    )


def _title(views: Sequence[GpuView]) -> str:
    models = {view.model for view in views if view.model}
    return f"{len(views)} × {models.pop()}" if len(models) == 1 else plural(len(views), "GPU")


def _common(views: Sequence[GpuView], busy: int, full: int, name: int) -> Line:
    totals = {view.gpu.sample.memory_total_bytes for view in views}
    total = totals.pop() if len(totals) == 1 else None
    memory = f"memory of {share(None, total).split('/')[1]}" if total else "memory"
    memory = memory if len(memory) <= full + 8 else "memory"
    label = _title(views)
    # Each begins where its bars do, if that leaves a blank.
    start = 5 + name
    first = f"{label:<{start}}busy" if len(label) < start else f"{label}  busy"
    return line(Span(fit(first, start + busy + 8) + fit(memory, full + 8), "muted"))


def _first_note(view: GpuView, room: int) -> list[Span]:
    if view.condition is None:
        return [Span(sparkline(list(view.gpu.utilization), room, 100.0), "muted")]
    text = view.condition.within(room)
    spark = room - len(text) - 1
    history = sparkline(list(view.gpu.utilization), spark, 100.0) if spark >= 6 else ""
    return [Span(text, view.condition.severity), Span(f" {history}" if history else "", "muted")]


def _memory_row(view: GpuView, room: int, note: int) -> Line:
    sample = view.gpu.sample
    figures = join_fitting(_figures(sample, limit=note > LEAST_NOTE_CELLS + 3), note, "  ")
    label = "  ", fit(share(sample.memory_used_bytes, sample.memory_total_bytes), LABEL_CELLS - 2)
    severity = sign(level(memory_percent(sample)))
    return bar_row(label, memory_percent(sample), room, _memory_role(view), figures, between=severity)


def _memory_role(view: GpuView) -> Role:
    severity = level(memory_percent(view.gpu.sample))
    return view.role if severity == "good" else severity


def _mig_row(view: GpuView, part: MigInstance, room: int) -> Line:
    owner = view.owner(part)
    device = view.places.get(owner.rank) if owner else None
    label = letter_span(device), " ", fit(mig_name(part), LABEL_CELLS - 2)
    figures = share(part.memory_used_bytes, part.memory_total_bytes), f"  rank {owner.rank}" if owner else ""
    return bar_row(label, memory_percent(part), room, device if device is not None else "muted", *figures)


def _figures(sample: DeviceSample, *, limit: bool) -> list[str]:
    return [
        SYSTEM_MEMORY if sample.has_system_memory else "",
        watts(sample, limit=limit),
        celsius(sample.temperature_c),
        megahertz(sample.sm_clock_mhz),
        _labelled("PCIe", traffic(sample.pcie_rx_bytes_per_s, sample.pcie_tx_bytes_per_s)),
        _labelled("NVLink", traffic(sample.nvlink_rx_bytes_per_s, sample.nvlink_tx_bytes_per_s)),
    ]


def _labelled(label: str, text: str) -> str:
    return f"{label} {text} GB/s" if text else ""
