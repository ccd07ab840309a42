"""Which of a machine's GPUs CUDA_VISIBLE_DEVICES leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"


def choose(wanted: str, present: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the UUIDs that a value of CUDA_VISIBLE_DEVICES names, in its order, by CUDA's rules.

    The value has indices, UUIDs or their prefixes, separated by commas; the first that matches nothing, or more than
    one, ends the list. "all" names everything. `present` has the UUID of each GPU, in PCI bus order, and those of its
    MIG instances, which are what there is to use of a GPU that has some.

    Source: https://docs.nvidia.com/cuda/cuda-programming-guide/, "CUDA environment variables".
    """
    parts = [part for some in present.values() for part in some]
    chosen: list[str] = []
    for word in [*present] if wanted == "all" else filter(None, (word.strip() for word in wanted.split(","))):
        if word.isascii() and word.isdecimal():
            found = [*present][int(word) : int(word) + 1]
        else:
            found = [uuid for uuid in (*present, *parts) if uuid.startswith(word)]
        if len(found) != 1:
            break
        chosen += [uuid for uuid in present.get(found[0]) or found if uuid not in chosen]
    return chosen
