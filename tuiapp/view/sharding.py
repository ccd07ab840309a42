"""What each device holds of an array, in words."""

from __future__ import annotations

from rich.cells import cell_len

from tuiapp.trainers.config.mesh import AXES
from tuiapp.trainers.state.rank_state import ArrayState, Device
from tuiapp.trainers.state.run_state import RunState
from tuiapp.trainers.state.text import format_bytes, join_words, sanitize

WEIGHT = "parameter "
"""What a weight's name begins with."""

MOST_SIZES = 6
"""Most unequal parts of a batch that are named one by one."""


def split_words(array: ArrayState) -> str:
    """Returns how an input is split: "batch 48 = 2 × 24"."""
    blocks = list(array.blocks())
    if len(blocks) < 2 or len(array.split_dimensions()) != 1:
        return f"{array.name} {layout_words(array)}"
    (dimension,) = array.split_dimensions()
    sizes = [block[dimension][1] - block[dimension][0] for block in blocks]
    if set(sizes) == {1} and len(array.shape) > dimension + 1:
        # A leading axis of devices.
        sizes = [array.shape[dimension + 1]] * len(blocks)
    part = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    copies = f", each on {copies_words(array)} devices" if array.layout == "split and replicated" else ""
    if len(set(sizes)) > 1 and len(sizes) <= MOST_SIZES:
        return f"{array.name} {sum(sizes)} = {' + '.join(map(str, sizes))}{copies}"
    return f"{array.name} {sum(sizes)} = {len(sizes)} × {part}{copies}"


def held_words(state: RunState) -> list[str]:
    """Returns what a device holds of the training state that is split, and what a replica would take."""
    if not state.held:
        return []
    most = max(sum(device.held.values()) for device in state.held.values())
    first = next(iter(state.held.values()))
    names = [sanitize(kind, 20) for kind in first.held]
    kinds = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return [
        f"{kinds} {format_bytes(most)} a device",
        f"replicated it would be {format_bytes(sum(first.whole.values()))}",
    ]


def split_weights(state: RunState) -> list[ArrayState]:
    """Returns the weights of a mesh that splits them: each is told in a line."""
    return [array for array in state.arrays.values() if array.name.startswith(WEIGHT) and AXES[1] in array.mesh]


def only_listed(state: RunState) -> set[str]:
    """Returns the names of the split weights without a picture: all but the first."""
    return {weight.name for weight in split_weights(state)[1:]}


def part_words(array: ArrayState, letters: dict[Device, str]) -> list[str]:
    """Returns where an array's parts are, the longest words first."""
    split = array.split_dimensions()
    if len(split) != 1:
        how = "whole on each" if len(array.blocks()) == 1 else layout_words(array)
        because = sanitize(array.why_whole, 80)
        return [f"{how}: {because}", because, how] if because else [how]
    (dimension,) = split
    blocks = array.blocks()
    parts = [
        f"{' '.join(letters[device] for device in devices)} {range_words(block[dimension])}"
        for block, devices in blocks.items()
    ]
    return [f"axis {dimension}: {', '.join(parts)}", ", ".join(parts), f"axis {dimension} in {len(blocks)}"]


def held_of_each_kind(held: dict[str, int]) -> str:
    """Lists bytes by kind of array, the most first, after their sum."""
    kinds = sorted(((count, kind) for kind, count in held.items() if count), reverse=True)
    return join_words([format_bytes(sum(held.values())), *(f"{kind} {format_bytes(count)}" for count, kind in kinds)])


def layout_words(array: ArrayState) -> str:
    """Returns on how many devices an array lies, and in how many parts."""
    return {
        "single": "on one device",
        "replicated": f"replicated ×{len(array.devices)}",
        "split": f"split in {len(array.blocks())}",
        "split and replicated": f"split in {len(array.blocks())}, each part on {copies_words(array)} devices",
    }[array.layout]


def with_spec(texts: list[str], array: ArrayState, width: int) -> str:
    """Adds over which axes of the mesh its dimensions are split, and the mesh, as far as there is room."""
    split = [f"dimension {number} over {sanitize(axis, 20)}" for number, axis in enumerate(array.spec) if axis]
    counts = " × ".join(f"{sanitize(axis, 20)}={count}" for axis, count in array.mesh.items())
    mesh = f"mesh {counts}" if counts else ""
    return fit_first(list(map(join_words, ([*texts, *split, mesh], [*texts, *split], texts))), width)


def bytes_words(array: ArrayState) -> str:
    """Formats how many bytes of an array a device has."""
    sizes = sorted({sum(shard.bytes for shard in shards) for shards in array.shards.values()})
    if len(sizes) > 1:
        return f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
    return f"{format_bytes(array.bytes_per_device)} each"


def copies_words(array: ArrayState) -> str:
    """Formats how many devices hold the same part: "2", or "1 to 3"."""
    counts = sorted({len(devices) for devices in array.blocks().values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def short_dtype(dtype: str) -> str:
    """Abbreviates a dtype: "f32" for "float32" or "torch.float32"."""
    name = sanitize(dtype, 20).removeprefix("torch.")
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


def range_words(pair: tuple[int, int]) -> str:
    """Formats a range of indices: "0–5", or "3"."""
    start, stop = pair
    return f"{start}–{stop - 1}" if stop - start > 1 else str(start)


def fit_first(texts: list[str], width: int) -> str:
    """Returns the first text that fits, or the last one."""
    return next((text for text in texts if cell_len(text) <= width), texts[-1])
