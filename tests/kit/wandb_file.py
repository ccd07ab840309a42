"""Reads what wandb has written without a network."""

from __future__ import annotations

import json
from pathlib import Path


def wandb_history(path: Path) -> list[dict[str, float]]:
    """The rows in a file of wandb: records in LevelDB's log format, in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, rows, begun = path.read_bytes(), 7, [], b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        begun += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            record = Record.FromString(begun)
            begun = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items})
    return rows
