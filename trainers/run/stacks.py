"""The Python stacks of ranks that make no progress: ranks write them to `ranks/<n>/stacks.txt`, the supervisor reads.

A rank is asked over its pipe, and a thread of its own writes the stacks of all threads. It holds the interpreter
meanwhile: `faulthandler` follows the frames of threads that run on only at the risk of a crash. A rank that does not
answer, as native code does not let go of its interpreter, gets a signal, as scripts do: from a C signal handler it
writes the stack of its main thread alone. A rank whose framework knows them also tells, in `ranks/<n>/collectives.txt`,
how many collectives it was given and which one it waits for.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tuiapp.trainers.config.files import make_private, open_regular
from tuiapp.trainers.contract.events import Stacks
from tuiapp.trainers.state.messages import describe_ranks

SIGNAL = signal.SIGUSR2
FILE = "stacks.txt"
COLLECTIVES_FILE = "collectives.txt"
MAX_BYTES = 64 * 1024
ANSWER_S = 3.0
"""Time for a rank on a busy machine to write."""
SIGNAL_AFTER_S = 1.5
"""A rank that was asked over its pipe, and has written nothing for this long, gets the signal."""
SETTLED_S = 0.2
"""A rank that has written nothing more for this long is done."""

_CONTROL = re.compile(r"[^\t\n -~\u00a0-\U0010ffff]")
_COLLECTIVE = re.compile(
    r"distributed_c10d\.py|_engine_run_backward|streams\.py.* in synchronize|all_reduce|all_gather|broadcast|barrier"
)
WAITING_FRAMES = 4
"""A rank waits in a collective if one of this many innermost Python frames names one."""
_COLLECTIVES = re.compile(r"^Collectives: (\d+) begun, (\d+) done(?:; waits for (.+))?$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)


def answer_the_signal(directory: Path) -> None:
    """Makes this process write the stack of its main thread on the signal; called once, at its start."""
    with contextlib.suppress(OSError):
        faulthandler.register(SIGNAL, file=_opened(directory / FILE), all_threads=False)


def tell(directory: Path) -> None:
    """Writes the stacks of all threads of this process."""
    with contextlib.suppress(OSError):
        fd = _opened(directory / FILE)
        try:
            faulthandler.dump_traceback(fd, all_threads=True)
        finally:
            os.close(fd)


def answer_unless_handled(directory: Path) -> None:
    """As `answer_the_signal`, for a user's script: leaves a handler of its own, or none on purpose, as it is."""
    if signal.getsignal(SIGNAL) == signal.SIG_DFL and not answers(os.getpid()):
        make_private(directory)
        answer_the_signal(directory)


class Collectives(NamedTuple):
    """How many collectives a rank has begun and done, of those that all ranks make in the same order."""

    begun: int
    done: int
    waits_for: str
    """What the first that is not done is; "" if all are, or it is not known."""

    def tell(self, directory: Path) -> None:
        """Writes them where `StackDump` finds them."""
        waits = f"; waits for {self.waits_for}" if self.waits_for else ""
        line = f"Collectives: {self.begun} begun, {self.done} done{waits}\n"
        fd = _opened(directory / COLLECTIVES_FILE)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


class Asked(Protocol):
    pid: int

    @property
    def directory(self) -> Path | None:
        """Where it writes its stacks; None if its node's agent reads them."""

    def ask_stacks(self) -> bool:
        """Has it write its stacks; False if it would not."""


def ask(pid: int) -> bool:
    """Has a process of this machine write its main stack; False if it has no handler, or is stopped."""
    if not answers(pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, SIGNAL)
    return True


class StackDump:
    """Requests stacks from ranks, and collects them without waiting; `hear` gets those that an agent has read."""

    def __init__(self, ranks: Mapping[int, Asked], now: float) -> None:
        self._pids = {number: rank.pid for number, rank in ranks.items()}
        self._paths = {number: rank.directory / FILE for number, rank in ranks.items() if rank.directory is not None}
        self._before = {rank: _size(path) for rank, path in self._paths.items()}
        self._reported = {rank: path.with_name(COLLECTIVES_FILE) for rank, path in self._paths.items()}
        self._told_before = {rank: _size(path) for rank, path in self._reported.items()}
        self._sizes = dict(self._before)
        self._began = self._grown = now
        # Without the file, the handler is the script's own.
        self._asked = [
            number for number, path in self._paths.items() if os.path.exists(path) and ranks[number].ask_stacks()
        ]
        self._signalled = False
        self._awaited = {number for number, rank in ranks.items() if rank.directory is None and rank.ask_stacks()}
        self._heard: list[Stacks] = []

    def on_stacks(self, stacks: Stacks) -> None:
        """Takes a remote rank's stacks; without text it has written none."""
        self._awaited.discard(stacks.rank)
        self._heard.append(stacks)

    def is_complete(self, now: float) -> bool:
        sizes = {rank: _size(path) for rank, path in self._paths.items()}
        if sizes != self._sizes:
            self._sizes, self._grown = sizes, now
        mute = [rank for rank in self._asked if sizes[rank] == self._before[rank]]
        if now - self._began >= SIGNAL_AFTER_S and not self._signalled:
            self._signalled = True
            for rank in mute:
                ask(self._pids[rank])
        answered = not self._awaited and not mute
        return (answered and now - self._grown >= SETTLED_S) or now - self._began >= ANSWER_S

    def read(self) -> list[Stacks]:
        """Each rank's stacks, safe for a screen; ranks that wrote nothing are left out."""
        own = []
        for rank, path in self._paths.items():
            if text := _read(path, self._before[rank]):
                reported = _read(self._reported[rank], self._told_before[rank])
                own.append(Stacks(rank=rank, pid=self._pids[rank], text=f"{reported}\n\n{text}" if reported else text))
        return [one for one in (*own, *self._heard) if one.text]


class Suspicion(NamedTuple):
    ranks: list[int]
    words: str


def suspect(stacks: list[Stacks], place_of: Callable[[int], str] = lambda rank: "") -> Suspicion | None:
    """Finds, among ranks at the same step, those that are elsewhere than the others; None if all agree.

    Ranks in a collective wait for those outside it; failing that, a single rank is elsewhere than the rest.
    """
    frames = {one.rank: _main_thread(one.text) for one in stacks}
    waiting = [rank for rank, own in frames.items() if any(map(_COLLECTIVE.search, own[:WAITING_FRAMES]))]
    apart = [rank for rank in frames if rank not in waiting]
    if not waiting:
        counts = Counter(own[0] for own in frames.values() if own)
        apart = [rank for rank, own in frames.items() if own and counts[own[0]] == 1]
        if len(counts) != 2 or len(apart) != 1:
            return None
    if not apart or len(apart) == len(frames):
        return None
    who = describe_ranks(apart, place_of)
    others = "wait in a collective" if waiting else "are together elsewhere"
    place = f": {frames[apart[0]][0]}" if frames[apart[0]] else ""
    return Suspicion(apart, f"{who} {'is' if len(apart) == 1 else 'are'} not where the others {others}{place}")


def suspect_collective(stacks: list[Stacks], place_of: Callable[[int], str] = lambda rank: "") -> Suspicion | None:
    """Finds the ranks that have not begun a collective in which others wait; None if nobody is known to wait in one."""
    reported = {one.rank: Collectives(int(match[1]), int(match[2]), match[3] or "") for one, match in _reported(stacks)}
    waiting = {rank: own for rank, own in reported.items() if own.begun > own.done}
    if not waiting:
        return None
    number = min(own.done for own in waiting.values()) + 1
    first = next(own.waits_for for own in waiting.values() if own.done + 1 == number)
    what = f"collective {number:,}" + (f", {first}" if first else "")
    if apart := [rank for rank, own in reported.items() if own.begun < number]:
        verb = "has" if len(apart) == 1 else "have"
        return Suspicion(apart, f"{describe_ranks(apart, place_of)} {verb} not begun {what}, in which others wait")
    return Suspicion([], f"all have begun {what}, and none has done it") if len(waiting) == len(stacks) > 1 else None


def _reported(stacks: list[Stacks]) -> list[tuple[Stacks, re.Match[str]]]:
    found = [(one, _COLLECTIVES.search(one.text)) for one in stacks]
    return [(one, match) for one, match in found if match is not None]


def _main_thread(text: str) -> list[str]:
    """Frames of the main thread, which faulthandler writes last; innermost first."""
    last = text[max(0, text.rfind("hread 0x")) :]
    return [f"{Path(one['file']).name}, line {one['line']}, in {one['function']}" for one in _FRAME.finditer(last)]


def answers(pid: int) -> bool:
    """Whether a process has a handler for the signal, whose default would end it; and is not stopped.

    A stopped one would get the signal when it continues, and write stacks that are no longer wanted.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (SIGNAL - 1) & 1) and "\nState:\tT" not in status


def _opened(path: Path) -> int:
    return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, offset: int) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = os.pread(fd, MAX_BYTES, offset)
    except OSError:
        return ""
    finally:
        os.close(fd)
    return _CONTROL.sub("�", data.decode(errors="replace")).strip()
