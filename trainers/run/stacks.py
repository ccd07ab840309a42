"""How a rank tells its Python stacks: it writes them to `ranks/<n>/stacks.txt`, where a `StackDump` reads them.

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
from pathlib import Path
from typing import NamedTuple

from tuiapp.trainers.config.files import make_private, open_regular

SIGNAL = signal.SIGUSR2
FILE = "stacks.txt"
COLLECTIVES_FILE = "collectives.txt"


def answer_the_signal(directory: Path) -> None:
    """Makes this process write the stack of its main thread on the signal; called once, at its start."""
    with contextlib.suppress(OSError):
        faulthandler.register(SIGNAL, file=_opened(directory / FILE), all_threads=False)


def tell(directory: Path) -> None:
    """Writes the stacks of all threads of this process."""
    with contextlib.suppress(OSError), open(_opened(directory / FILE), "ab", buffering=0) as file:
        faulthandler.dump_traceback(file, all_threads=True)


def answer_unless_handled(directory: Path) -> None:
    """Answers the signal in a user's script: a handler of its own, or none on purpose, stays as it is."""
    if signal.getsignal(SIGNAL) == signal.SIG_DFL and not answers(os.getpid()):
        make_private(directory)
        answer_the_signal(directory)


class Collectives(NamedTuple):
    """How many collectives a rank has begun and done, of those that all ranks make in the same order."""

    begun: int
    done: int
    waits_for: str
    """The first collective that is not done; "" if all are, or it is not known."""

    def tell(self, directory: Path) -> None:
        """Writes them where `StackDump` finds them."""
        waits = f"; waits for {self.waits_for}" if self.waits_for else ""
        with open(_opened(directory / COLLECTIVES_FILE), "ab", buffering=0) as file:
            file.write(f"Collectives: {self.begun} begun, {self.done} done{waits}\n".encode())


def ask(pid: int) -> bool:
    """Has a process of this machine write its main stack; False if it has no handler, or is stopped."""
    if not answers(pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, SIGNAL)
    return True


def answers(pid: int) -> bool:
    """Tells whether a process has a handler for the signal, whose default would end it; and is not stopped.

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
