"""What speaks against a launch without forbidding it: the same in the form and on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from tuiapp.trainers.config.gpu_choice import Use, use_of
from tuiapp.trainers.config.machine import Gpu, Lease, Machine
from tuiapp.trainers.config.memory import MemoryEstimate, data_copies, parts_that_fit, shortages
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script_syntax import CONFIG_VARIABLE, named_in_braces, read_texts
from tuiapp.trainers.state.text import format_bytes, format_clock, join_words, sanitize

LARGE_PART = 0.5  # share of the free memory above which data causes a warning


def memory_warning(placed: RunConfig, machine: Machine, estimate: MemoryEstimate) -> str:
    """Explains why a placed configuration may not fit, with figures; "" if it fits."""
    if short := shortages(placed, machine, estimate):
        least = min(short, key=lambda shortage: shortage.free_bytes)
        whose = (
            "per device"
            if placed.platform == "cuda"
            else "for each node's ranks"
            if placed.nodes > 1
            else "for all ranks"
        )
        wanted = f"about {format_bytes(least.wanted_bytes)} {whose}"
        parts = parts_that_fit(placed, machine, estimate)
        advice = f"try accumulate = {parts}" if parts else "it may not fit"
        return f"{wanted}, but {format_bytes(least.free_bytes)} free on {least.where}: {advice}"
    data, free = estimate.data * data_copies(placed), machine.memory_available_bytes
    if free is not None and data > LARGE_PART * free:
        return f"the data take {format_bytes(data)} of {format_bytes(free)} free on this machine: it may not fit"
    return ""


def why_cpu(config: RunConfig, placed: RunConfig, machine: Machine) -> str:
    """Why an open platform comes to the CPU on a machine with NVIDIA's driver; "" if it does not, or there is none."""
    return sanitize(machine.gpu_trouble) if (config.platform, placed.platform) == ("auto", "cpu") else ""


def unfilled(config: RunConfig, names: Iterable[str] | None = None) -> str:
    """Says which of a script's own values (all, or those with the names) stand in no argument; "" if all do."""
    values = read_texts(config.values) if names is None else names
    if not (unused := [name for name in values if name not in named_in_braces(config.arguments)]):
        return ""
    braces = " ".join(f"{{{name}}}" for name in unused)
    return sanitize(
        f"no argument has {braces}: only tuiapp.init().config and {CONFIG_VARIABLE}{unused[0]} tell the script"
    )


def busy_gpus(placed: RunConfig, machine: Machine) -> list[Gpu]:
    """Returns the GPUs of a placed configuration that others use."""
    return [gpu for gpu in machine.gpus if gpu.uuid in placed.device_ids and use_of(gpu) > Use.IDLE]


def describe_use(gpu: Gpu) -> str:
    """Describes what a GPU does, and for whom; omits what the driver does not report."""
    held = [describe_lease(lease) for lease in gpu.leases]
    held += [f"{user} {words}" for user, words in users_of(gpu).items()]
    if not held and gpu.memory_used_bytes is not None:
        held = [f"{format_bytes(gpu.memory_used_bytes)} used"]
    load = "" if gpu.utilization_percent is None else f"{gpu.utilization_percent} % busy"
    return join_words([load, ", ".join(held)])


def describe_lease(lease: Lease) -> str:
    """Describes the run that has a GPU: whose, and since when."""
    return f"{sanitize(lease.run)} of {sanitize(lease.user)} since {format_clock(lease.since)}"


def user_names(gpu: Gpu) -> list[str]:
    """Returns who has a GPU, by a run or by processes, each once."""
    return [*dict.fromkeys([*(sanitize(lease.user) for lease in gpu.leases), *users_of(gpu)])]


def users_of(gpu: Gpu) -> dict[str, str]:
    """Returns for each user of a GPU's memory the number of processes and the memory, as text."""
    users: dict[str, list[int | None]] = {}
    for process in gpu.processes or ():
        # No name: a user outside this container, or with hidden processes.
        users.setdefault(sanitize(process.user) or "others", []).append(process.memory_bytes)
    texts = {}
    for user, held in users.items():
        count = "1 process" if len(held) == 1 else f"{len(held)} processes"
        sizes = [memory for memory in held if memory is not None]
        texts[user] = f"{count} {format_bytes(sum(sizes))}" if sizes else count
    return texts
