"""What a rank's process group was given and has not done: read from PyTorch's flight recorder, for a hang's report.

The recorder keeps the last collectives in memory, and gives them as JSON to any thread of the process, even while
another waits in one (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html). Its functions are
private: another version of PyTorch may lack them, and a hang is then reported without.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
import torch.distributed as dist

from tuiapp.trainers.run.stacks import Collectives

DEFAULT_GROUP = "0"


def collectives() -> Collectives | None:
    """Returns the default process group's collectives; None if the recorder is off, or PyTorch has none."""
    # NCCL has a recorder of its own.
    name = "_dump_nccl_trace_json" if dist.get_backend() == "nccl" else "_dump_fr_trace_json"
    dump = getattr(torch._C._distributed_c10d, name, None)
    return read_trace(msgspec.json.decode(dump(includeCollectives=True, onlyActive=True))) if dump else None


def read_trace(trace: dict[str, Any]) -> Collectives | None:
    """Reads the recorder's output; all collectives are counted from 1, on each rank in the same order.

    What is done is read from each collective: gloo's threads note their last one in any order, so that number may stay
    behind for good.
    """
    group = trace.get("pg_status", {}).get(DEFAULT_GROUP)
    if group is None:
        return None
    # −1: none so far.
    begun = max(0, int(group["last_enqueued_collective"]))
    waiting = [entry for entry in trace.get("entries", ()) if _is_waited_for(entry)]
    if not waiting:
        return Collectives(begun, begun, "")
    first = min(waiting, key=lambda entry: int(entry["collective_seq_id"]))
    return Collectives(begun, int(first["collective_seq_id"]) - 1, describe(first))


def _is_waited_for(entry: dict[str, Any]) -> bool:
    if str(entry["pg_id"]) != DEFAULT_GROUP or entry["is_p2p"]:
        return False
    # NCCL's is completed some time before its watchdog retires it; gloo's has one state only.
    return not entry["retired"] and entry["state"] != "completed"


def describe(entry: dict[str, Any]) -> str:
    """Says what a collective does: "all_reduce of Float [225226]"."""
    name = str(entry["profiling_name"]).rpartition(":")[2]
    arrays = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    return f"{name} of " + ", ".join(f"{dtype} {sizes}" for dtype, sizes in arrays)
