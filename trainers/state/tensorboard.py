"""Writes a run's metrics as TensorBoard's event files: for `tuiapp export`, and for a live mirror.

Rank 0 is in the directory itself, every other rank in a directory below: TensorBoard calls each of these a run, and
draws the runs that have a tag in one chart. So `loss` is one chart with a curve per rank, and several runs side by side
are compared by the names without a slash. A tag per rank (`loss/rank0`) would be a chart per rank, none of which shows
who is behind. The directory itself also has the configuration, for the HParams tab.

Steps and wall times are the journal's. Where a run was resumed, a session start makes TensorBoard drop the steps that
are repeated. The extremes of joined entries are left out.

Messages and records are those of the tensorboard package. tensorboardX, which is lighter to install, imports PyTorch
wherever that is installed: seconds, and hundreds of MB.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from math import nan
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import msgspec

from tuiapp.trainers.config.secrets import mask_values
from tuiapp.trainers.contract.events import AnyEvent, Facts, Metrics, Purged, RunEnded, RunStarted
from tuiapp.trainers.state.history import Attempts

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

MAX_UNSURE = 1000


class EventFiles:
    """Event files of one run below `directory`, which is made. Raises OSError if they cannot be written.

    Args:
        directory: Where rank 0's file is.
        name: The run's, in the HParams tab.
        config: Hyperparameters, by name; those that the events have before the first metric are added.
        wants: Whether a metric is written.
    """

    def __init__(
        self, directory: Path, name: str, config: Mapping[str, object], wants: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._directory, self._name, self._config, self._wants = directory, name, {**config}, wants
        self._files: dict[int, RecordWriter] = {}
        self._attempts = Attempts()
        self._from = 0
        """First step of the attempt that repeats steps; 0 for the first attempt."""
        self._marked: set[int] = set()
        """Ranks whose files have the attempt's beginning."""
        self._unsure: list[Metrics] = []
        """What was written before it was known from which step the attempt goes on."""

    def add(self, event: AnyEvent) -> int:
        """Writes what TensorBoard shows of an event; returns the number of entries written."""
        resumed, present = self._attempts.add(event), self._attempts.present
        if resumed is not None and present is not None:
            self._from = resumed + 1 if present.attempt > 1 else 0
        if isinstance(event, Metrics):
            return self._add_metrics(event)
        if isinstance(event, Purged):
            self._begin(event.rank, event.time)
            self._write_start(event.rank, event.time, event.step)
        elif isinstance(event, RunStarted):
            self._marked, self._unsure = set(), []
            self._config |= event.config
        elif isinstance(event, Facts):
            self._config |= event.config
        elif isinstance(event, RunEnded):
            self._write_hparams(event.time, end=event)
        return 0

    def flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _add_metrics(self, event: Metrics) -> int:
        if not any(map(self._wants, event.values)):
            return 0
        self._begin(event.rank, event.time)
        self._write_values(event)
        if self._attempts.resuming and len(self._unsure) < MAX_UNSURE:
            self._unsure.append(event)
        return len(event)

    def _write_values(self, event: Metrics, from_step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        columns = [(_text(name), column) for name, column in event.values.items() if self._wants(name)]
        for entry, (step, moment) in enumerate(event.places()):
            if step >= from_step:
                values = [
                    Summary.Value(tag=tag, simple_value=nan if column[entry] is None else column[entry])
                    for tag, column in columns
                ]
                self._write(event.rank, Event(wall_time=moment, step=step, summary=Summary(value=values)))

    def _begin(self, rank: int, time: float) -> None:
        """Opens a rank's file unless it is open, and marks the attempt's beginning in it."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        if rank not in self._files:
            directory = self._directory / f"rank{rank}" if rank else self._directory
            directory.mkdir(parents=True, exist_ok=True)
            # As TensorFlow names it. TensorBoard reads the files of a directory in the order of their names.
            seconds, nanoseconds = divmod(time_ns(), 10**9)
            name = f"events.out.tfevents.{seconds:010}.{socket.gethostname()}.{os.getpid()}.{nanoseconds:09}"
            self._files[rank] = RecordWriter(open(directory / name, "xb"))  # noqa: SIM115
            self._write(rank, Event(wall_time=time, file_version="brain.Event:2"))
            if rank == 0:
                self._write_hparams(time)
        if rank not in self._marked and not self._attempts.resuming:
            self._marked.add(rank)
            if self._from:
                self._write_start(rank, time, self._from)
                # Dropped with what they repeat.
                for event in self._unsure:
                    if event.rank == rank:
                        self._write_values(event, self._from)

    def _write_start(self, rank: int, time: float, step: int) -> None:
        """Has TensorBoard drop what was written of a step and later ones."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self._write(rank, Event(wall_time=time, step=step, session_log=SessionLog(status=SessionLog.START)))

    def _write_hparams(self, time: float, end: RunEnded | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.plugins.hparams.api_pb2 import Status
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

        if end is None:
            info = SessionStartInfo(group_name=_text(self._name), start_time_secs=time)
            for key, value in mask_values(self._config).items():
                _set(info.hparams[_text(key)], value)
            tag, data = "_hparams_/session_start_info", HParamsPluginData(session_start_info=info)
        else:
            status = Status.STATUS_FAILURE if end.status == "failed" else Status.STATUS_SUCCESS
            ended = SessionEndInfo(status=status, end_time_secs=time)
            tag, data = "_hparams_/session_end_info", HParamsPluginData(session_end_info=ended)
        plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
        value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))
        self._begin(0, time)
        self._write(0, Event(wall_time=time, summary=Summary(value=[value])))

    def _write(self, rank: int, event: Event) -> None:
        self._files[rank].write(event.SerializeToString())


def _set(field: Any, value: object) -> None:
    if isinstance(value, bool):
        field.bool_value = value
    elif isinstance(value, int | float):
        field.number_value = value
    else:
        field.string_value = _text(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _text(text: str) -> str:
    # A message holds UTF-8 alone.
    return text.encode(errors="replace").decode()
