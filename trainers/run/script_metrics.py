"""Metrics of a script that reports none: found in its output by a pattern, and in TensorBoard's event files."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from time import monotonic, time
from types import FrameType
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tuiapp.trainers.config.options import shown
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.script_syntax import STEP, as_read, compile_pattern
from tuiapp.trainers.contract.events import Alert, LogLine, Media, Metrics, Purged
from tuiapp.trainers.contract.media import MediaFolder
from tuiapp.trainers.contract.metrics import MAX_COUNT, MAX_STEP
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.readers.tensorboard import FoundEventFiles, Purge, Scalar
from tuiapp.trainers.run.ranks import RankProcess
from tuiapp.trainers.run.step_batch import Budget, pack_rows

LOOK_S = 1.0
"""Time between two looks into the directory of event files; longer if a look takes long."""
LAST_LOOK_S = 5.0
LINES_AT_ONCE = 1000
MATCH_S = 1.0
"""Seconds of processor time: a pattern that takes more for so many lines is given up, as some never end."""


Found: TypeAlias = Metrics | Purged | Media | Alert | LogLine


class Row(NamedTuple):
    step: int
    values: Mapping[str, float]
    time: float | None = None
    """Seconds since the epoch; None for the time at which the row is read."""


class ScriptMetrics:
    """Collects the metrics of all ranks of a script; `take` returns them for the journal."""

    def __init__(self, config: RunConfig, run: RunDir, world_size: int = 1) -> None:
        self._run = run
        self._media: dict[int, MediaFolder] = {}
        self._pattern = compile_pattern(config.output_pattern) if config.output_pattern else None
        self._began = time()
        self._ranks: dict[int, int] = {}
        # Several nodes may share the directory: each reads its own files.
        host = socket.gethostname() if config.nodes > 1 else ""
        self._files = _FileReader(Path(config.tensorboard_dir), host, self._rank_of) if config.tensorboard_dir else None
        self._idle: dict[str, str] = {}
        """Settings that have found no metric yet, on any node → words for that."""
        if config.output_pattern:
            self._idle["output_pattern"] = (
                f"output_pattern {shown(config.output_pattern)} found no number in the output"
            )
        if config.tensorboard_dir:
            self._idle["tensorboard_dir"] = f"no scalar was written below tensorboard_dir {config.tensorboard_dir!r}"
        self._world_size = world_size
        self._batches: dict[int, RowBatch] = {}
        self._dropped: set[str] = set()
        """Settings of which a value was dropped, which is said once."""
        self._unread = 0
        """Values of `output_pattern` that are no numbers."""
        self._out: list[Found] = []

    def listen(self, process: RankProcess) -> None:
        """Has a rank's lines matched."""
        self._ranks[process.pid] = process.rank
        if self._pattern is None:
            return
        for tail in process.tails:
            tail.on_texts = partial(self._on_texts, process.rank, MatchedLines(self._pattern))

    def take(self, now: float) -> list[Found]:
        """Returns the metrics of all ranks since the last call; `now` is monotonic."""
        if self._files is not None:
            self._sort(self._files)
        for batch in self._batches.values():
            self._out += batch.flush(now)
        taken, self._out = self._out, []
        return taken

    def finish(self) -> list[Found]:
        """Returns what the ranks, which have all ended, have written last."""
        if self._files is not None:
            self._files.finish()
        if self._unread > 1:
            text = f"output_pattern found {self._unread:,} values that are no numbers: not recorded"
            self._out.append(LogLine(rank=None, stream="run", text=text))
        return self.take(monotonic())

    def idle(self) -> list[LogLine]:
        """Returns a note of each setting that has found nothing."""
        return [LogLine(rank=None, stream="run", text=text) for text in self._idle.values()]

    def note_found(self) -> None:
        """Drops the notes of `idle`: another node has found metrics."""
        self._idle.clear()

    def _on_texts(self, rank: int, lines: MatchedLines, texts: list[str]) -> None:
        for start in range(0, len(texts), LINES_AT_ONCE):
            if self._pattern is None:
                return
            try:
                with _no_longer_than(MATCH_S):
                    for row in lines.match(texts[start : start + LINES_AT_ONCE]):
                        self._batch(rank).add(row)
                        self._idle.pop("output_pattern", None)
                if lines.dropped is not None:
                    self._note_dropped("output_pattern", lines.dropped, "")
                self._note_unread(lines.unread)
                lines.unread.clear()
            except TimeoutError:
                self._pattern = None
                self._idle.pop("output_pattern", None)
                text = f"output_pattern takes more than {MATCH_S:.0f} s for a few lines: it is no longer used"
                self._out.append(Alert(kind="output-pattern", text=text))

    def _sort(self, files: _FileReader) -> None:
        while files.found:
            scalar = files.found.popleft()
            if isinstance(scalar, Path):
                text = f"{scalar} is not an event file, or is damaged: the rest of it is not read"
                self._out.append(LogLine(rank=None, stream="run", text=text))
                continue
            rank = self._rank_of(scalar.pid)
            if isinstance(scalar, Purge):
                self._out += self._batch(rank).flush(monotonic())
                self._out.append(Purged(rank=rank, step=min(scalar.step, MAX_STEP), names=scalar.names))
            else:
                self._idle.pop("tensorboard_dir", None)
                if scalar.step <= MAX_STEP and isinstance(scalar.value, list):
                    folder = self._media.setdefault(rank, MediaFolder(self._run, rank, self._world_size))
                    # As many names as are kept; a full disk is said elsewhere.
                    with suppress(OSError, ValueError):
                        self._out += folder.write(scalar.name, scalar.step, scalar.value)
                elif scalar.step <= MAX_STEP and isinstance(scalar.value, float):
                    # Its writer may keep it for minutes. What is copied from elsewhere is not of this run's time.
                    moment = min(max(scalar.time, self._began), time())
                    self._batch(rank).add(Row(scalar.step, {scalar.name: scalar.value}, moment))
                else:
                    self._note_dropped("tensorboard_dir", scalar.step, f" of {scalar.name}")

    def _rank_of(self, pid: int) -> int:
        # A file of a process that no rank is, such as one that it started, is the node's first rank's.
        return self._ranks.get(pid, min(self._ranks.values(), default=0))

    def _note_dropped(self, setting: str, step: float, what: str) -> None:
        """Says once per setting that a value is not recorded, because of its step."""
        if setting not in self._dropped:
            self._dropped.add(setting)
            text = f"{setting}: step {step:,.0f}{what} is out of range, or too far from the step before: not recorded"
            self._out.append(Alert(kind="metric", text=text))

    def _note_unread(self, values: Sequence[tuple[str, str]]) -> None:
        """Says of the first value that is no number what it is, and counts the others."""
        if values and not self._unread:
            name, said = values[0]
            text = f"output_pattern found {shown(said)} for {name}, which is no number: such values are not recorded"
            self._out.append(Alert(kind="metric", text=text))
        self._unread += len(values)

    def _batch(self, rank: int) -> RowBatch:
        return self._batches.setdefault(rank, RowBatch(rank, self._world_size))


class MatchedLines:
    """The lines of one stream of a rank.

    A row's step is that of its group `step`, or else the stream's last one; without such a group rows are counted. What
    a line says once more, as where prints are joined, is a row of its own. A step that falls is the beginning of an
    epoch: what follows is counted on. A row whose step no run reaches, or which skips `MAX_COUNT` steps, says nothing
    of training.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._counts = STEP not in pattern.groupindex
        self._step = self._base = 0
        self._begun = False
        self.dropped: float | None = None
        """The last step that was out of range."""
        self.unread: list[tuple[str, str]] = []
        """Values that are no numbers, each with its metric's name."""

    def match(self, texts: Sequence[str]) -> Iterator[Row]:
        for text in texts:
            groups: dict[str, str] = {}
            for match in self._pattern.finditer(as_read(text)):
                said = {name: value for name, value in match.groupdict().items() if value is not None}
                if groups.keys() & said.keys():
                    yield from self._row(groups)
                    groups = {}
                groups |= said
            yield from self._row(groups)

    def _row(self, groups: Mapping[str, str]) -> Iterator[Row]:
        read = {name.replace("__", "/"): (said, _number(said)) for name, said in groups.items()}
        self.unread += [(name, said) for name, (said, value) in read.items() if said and value is None]
        values = {name: value for name, (_, value) in read.items() if value is not None}
        step = values.pop(STEP, None)
        if step is not None and step >= 0:
            base = self._base if self._base + step >= self._step else self._step + (step == 0)
            furthest = min(MAX_STEP, self._step + MAX_COUNT - 1) if self._begun else MAX_STEP
            if base + step > furthest:
                self.dropped = step
                return
            self._base, self._step, self._begun = base, base + int(step), True
        elif self._counts and values:
            self._step += 1
        if values:
            yield Row(self._step, values)


class RowBatch:
    """The rows of one rank on their way to the journal: joined into events, and thinned if there are too many."""

    def __init__(self, rank: int, world_size: int = 1) -> None:
        self._rank = rank
        self._rows: list[Row] = []
        self._budget = Budget.of_script(monotonic(), world_size)

    def add(self, row: Row) -> None:
        last = self._rows[-1] if self._rows else None
        if last and last.step == row.step and not last.values.keys() & row.values.keys():
            self._rows[-1] = row._replace(values={**last.values, **row.values})
        else:
            self._rows.append(row)

    def flush(self, now: float) -> Iterator[Metrics]:
        rows, self._rows = self._rows, []
        window = self._budget.window(len(rows), now) if rows else 1
        for _, group in groupby(rows, lambda row: (row.values.keys(), row.time and int(row.time))):
            alike = list(group)
            columns = {name: [row.values[name] for row in alike] for name in alike[0].values}
            for event in pack_rows(self._rank, [row.step for row in alike], columns, window):
                yield event if alike[-1].time is None else replace(event, time=alike[-1].time)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in what takes more processor time; in the main thread only.

    The `re` module looks for signals while it matches.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class _FileReader:
    """Reads event files in a thread: their file system may not answer."""

    def __init__(self, directory: Path, host: str, rank_of: Callable[[int], int]) -> None:
        self.found: deque[Scalar | Purge | Path] = deque()
        """What was read, and files that are damaged."""
        self._files = FoundEventFiles(directory, host, rank_of)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="event-files", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join(LAST_LOOK_S)

    def _read(self) -> None:
        last = False
        while not last:
            began = monotonic()
            last = self._over.is_set()
            damaged = len(self._files.damaged)
            self.found += self._files.read()
            self.found += self._files.damaged[damaged:]
            if not last:
                self._over.wait(max(LOOK_S, 20 * (monotonic() - began)))
